"""Changes single values in the text of a file, which stays as it is otherwise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from tuner_tui.settings.dialects.nested_values import flatten, holds_one_section, set_nested
from tuner_tui.settings.dialects.script_search import pattern_of
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.yaml_reader import INI, compose_tool_yaml, parse_tool_text

KeyPath = tuple[str, ...]


def patch_text(text: str, changes: Mapping[KeyPath, Any], source: str, suffix: str = ".yaml") -> str:
    """`text` with `changes`. Raises `SettingsError` for a value that is shared, over sections or new in TOML."""
    if suffix in (".toml", *INI):
        edits = [_toml_edit(text, path, value, source) for path, value in changes.items()]
    else:
        # YAML has no tabs between its tokens, JSON has none within its texts.
        root = compose_tool_yaml(text.replace("\t", " ") if suffix == ".json" else text, source)
        whole = _with_new_sections(root, changes, suffix)
        edits = [_edit(text, root, path, value, source) for path, value in whole.items()]
    patched = text
    # From the end to the beginning, so that the marks of what is still to be edited stay valid.
    for start, end, new in sorted(edits, key=lambda edit: edit[0], reverse=True):
        patched = patched[:start] + new + patched[end:]
    # Whether the edits were right is checked: the text must parse to the old values with just these changes.
    before, after = (
        {key: value for key, value in flatten(file.values).items() if not holds_one_section(value)}
        for file in (parse_tool_text(version, source, suffix) for version in (text, patched))
    )
    expected = {**before, **{".".join(path): value for path, value in changes.items()}}
    gone = {".".join(path) for path, value in changes.items() if value is None}
    if after != {key: value for key, value in expected.items() if key not in gone}:
        raise SettingsError(f"{source}: these values cannot be changed without changing others; edit it by hand")
    return patched


def _toml_edit(text: str, path: KeyPath, value: Any, source: str) -> tuple[int, int, str]:
    """Start, end and new text of one value in its table; None removes the line of the key."""
    table: tuple[str, ...] = ()
    for line in pattern_of("toml_line").finditer(text):
        if line["table"]:
            table = tuple(line["table"].split("."))
        elif (*table, *line["key"].split(".")) == path:
            if value is None:
                return line.start(), line.end() + 1, ""
            return *line.span("value"), json.dumps(value) if source.endswith(".toml") else str(value)
    raise SettingsError(f"{source}: has no {'.'.join(path)} as a single value; add it by hand")


def _with_new_sections(root: yaml.MappingNode, changes: Mapping[KeyPath, Any], suffix: str) -> dict[KeyPath, Any]:
    """`changes` with those of a section that a JSON file lacks put together as the value of that section."""
    sections: dict[KeyPath, Any] = {}
    for path, value in changes.items():
        section: yaml.Node | None = root
        for depth, key in enumerate(path[:-1]):
            pairs = section.value if isinstance(section, yaml.MappingNode) else ()
            section = next((node for name, node in pairs if name.value == key), None)
            if section is None and suffix == ".json":
                set_nested(sections.setdefault(path[: depth + 1], {}), path[depth + 1 :], value)
                break
        else:
            sections[path] = value
    return sections


def _edit(text: str, root: yaml.MappingNode, path: KeyPath, value: Any, source: str) -> tuple[int, int, str]:
    """Start, end and new text of one changed key."""
    section: Any = root
    for key in path[:-1]:
        is_list = isinstance(section, yaml.SequenceNode)
        inner = dict(enumerate(section.value) if is_list else ((name.value, node) for name, node in section.value))
        section = inner.get(0 if is_list else key)
        if not isinstance(section, yaml.CollectionNode):
            raise SettingsError(f"{source}: has no section {key} for {'.'.join(path)}")
    pair = next((pair for pair in section.value if pair[0].value == path[-1]), None)
    if pair is None:
        return _insertion(text, section, section is root, path[-1], value)
    name, node = pair
    start, end = node.start_mark.index, node.end_mark.index
    # An alias has the marks of its anchor, which lies elsewhere; a change at the anchor would change more.
    shared = start < name.end_mark.index or text[start : start + 1] in ("&", "*")
    if shared or not isinstance(node, yaml.ScalarNode) or node.style in ("|", ">"):
        line = name.start_mark.line + 1
        raise SettingsError(f"{source}:{line}: {'.'.join(path)} is not a separate value (an alias or merge)")
    if value is not None:
        word = _scalar(value, bool(section.flow_style))
        return start, end, word if start < end else f" {word}"
    if section.flow_style:
        raise SettingsError(f"{source}: {'.'.join(path)} must be removed; edit it by hand")
    newline = text.find("\n", end)
    return text.rfind("\n", 0, name.start_mark.index) + 1, len(text) if newline < 0 else newline + 1, ""


def _insertion(text: str, section: yaml.MappingNode, at_end: bool, key: str, value: Any) -> tuple[int, int, str]:
    if section.flow_style:
        start = section.start_mark.index + 1
        first = section.value[0][0].start_mark.index if section.value else start
        comma = "," if section.value else ""
        return start, start, f"{text[start:first]}{json.dumps(key)}: {_scalar(value, True)}{comma}"
    newline = "\r\n" if "\r\n" in text else "\n"
    first = section.value[0][0].start_mark
    indent = " " * first.column
    line = f"{indent}{key}: {_scalar(value, False)}{newline}"
    if at_end:
        return len(text), len(text), line if text.endswith("\n") else f"{newline}{line.rstrip()}"
    start = first.index - first.column
    return start, start, line


def _scalar(value: Any, flow: bool) -> str:
    """A value as every reader sees it: floats with a decimal point, which PyYAML needs to read a number."""
    if flow and not isinstance(value, float):
        return json.dumps(value)
    return str(yaml.safe_dump(value, allow_unicode=True).splitlines()[0])
