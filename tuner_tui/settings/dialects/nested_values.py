"""The values of a configuration file with sections: dotted keys, references and what is to be filled in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tuner_tui.settings.dialects.script_search import pattern_of
from tuner_tui.settings.model import shorten_text

TEMPLATE = re.compile(r"\$\{.*\}|\{\{.*\}\}|<.*>|\$\w+|\$\(.*\)|\?\?\?|@[A-Za-z_][\w:.#]*")
"""A value that is filled in before the tool reads the file: `${BF16}`, OmegaConf's `???`, MONAI's `@optimizer`."""
SEARCHED = ("vals", "minval")
"""Keys of a section of Determined in the place of a value that its search chooses, next to its `type`."""
MOST_REFERENCES = 20


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as one mapping with dotted keys; lists and empty sections stay values.

    The only section of a list is read as well, under `key.0`; what several have in common under `key.*`.
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and "type" in value and not value.keys().isdisjoint(SEARCHED):
            flat[f"{prefix}{key}"] = "<searched>"
        elif isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
        if holds_one_section(value):
            flat |= flatten(value[0], f"{prefix}{key}.0.")
        elif isinstance(value, list) and value and all(isinstance(entry, Mapping) for entry in value):
            first, *others = (flatten(entry, f"{prefix}{key}.*.") for entry in value)
            if all(other.keys() == first.keys() for other in others):
                same = {name for name in first if all(other[name] == first[name] for other in others)}
                flat |= {name: first[name] if name in same else "<several>" for name in first}
    return flat


def holds_one_section(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping)


def unflatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as sections."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        set_nested(nested, key.split("."), value)
    return nested


def set_nested(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set the value in its section, or remove the key if the value is None, so that the tool's default applies."""
    for key in path[:-1]:
        if not isinstance(values.get(key), dict):
            if value is None:
                return
            values[key] = {}
        values = values[key]
    if value is None:
        values.pop(path[-1], None)
    else:
        values[path[-1]] = value


def with_references(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with OmegaConf's references to single values of the same file, and the defaults of others, put in."""
    flat = flatten(values)

    def referred(match: re.Match[str], section: Sequence[str]) -> Any:
        above = len(match["dots"]) - 1
        path = [*section[: len(section) - above], match["key"]] if above >= 0 else [match["key"]]
        value = flat.get(".".join(path)) if match["resolver"] in (None, "oc.select") else None
        if value is None and match["resolver"] in ("oc.env", "env", "oc.select", "oc.decode"):
            value = match["key"] if match["resolver"] == "oc.decode" else match["default"]
        return value if isinstance(value, str | int | float) else None

    # From the inside out. What OmegaConf computes (`${eval:…}`) stays as it is and counts as filled in at start.
    def resolved(value: Any, section: Sequence[str]) -> Any:
        if isinstance(value, Mapping):
            return {key: resolved(inner, [*section, key]) for key, inner in value.items()}
        text = value
        for _ in range(MOST_REFERENCES):
            match = pattern_of("reference").search(text) if isinstance(text, str) else None
            referent = None if match is None else referred(match, section[:-1])
            if match is None or referent is None:
                break
            whole = match[0] == text
            text = referent if whole else f"{text[: match.start()]}{referent}{text[match.end() :]}"
        return value if isinstance(text, str) and "${" in text else text

    return {key: resolved(value, [key]) for key, value in values.items()}


def to_fill_in(value: object) -> bool:
    """Whether a text stands for a value that its reader puts in: `path/to/data`, `{TBD}`, `--model <model_name>`."""
    return isinstance(value, str) and pattern_of("to_fill_in").search(value.rpartition("=")[2]) is not None


def placeholders(texts: Iterable[str], source: str = "") -> str:
    """The texts to fill in, each by the name of the variable that a script of `source` puts it in, where it has one."""
    assigned = re.finditer(r"(?m)^[ \t]*(?:export[ \t]+)?(\w+)=[\"']?([^\"'\s]+)", source)
    names = {match[2]: match[1] for match in assigned}
    words = (text.rpartition("=")[2] for text in filter(to_fill_in, texts))
    return ", ".join(dict.fromkeys(shorten_text(names.get(word, word)) for word in words))


def texts_in(values: object) -> Iterator[str]:
    """Every text among values, in sections and lists as well."""
    if isinstance(values, str):
        yield values
    elif isinstance(values, Mapping | list | tuple):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from texts_in(value)


def without_alternatives(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values without the sections that are alternatives to one that a value names: `model_type = "SD3"`.

    So are those that change what a section `defaults` has, or one that begins the name: `optim_gan` next to `optim`.
    """
    named = {value.lower() for value in values.values() if isinstance(value, str)}
    sections = {key: value.keys() for key, value in values.items() if isinstance(value, Mapping)}
    chosen = [key for key in sections if key.lower() in named or key.lower() in ("default", "defaults", "base")]
    first = next((key for key in sections if any(other.startswith(f"{key}_") for other in sections)), None)
    if first is not None and not chosen:
        sections = {key: inner for key, inner in sections.items() if key == first or key.startswith(f"{first}_")}
        sections = {key: inner for key, inner in sections.items() if not re.search(r"_(val|eval|test|dev)", key)}
        chosen = [first]
    if len(chosen) != 1:
        return values
    keys = sections.pop(chosen[0])
    others = {key for key, inner in sections.items() if 2 * len(keys & inner) >= min(len(keys), len(inner)) > 1}
    return {key: value for key, value in values.items() if key not in others}
