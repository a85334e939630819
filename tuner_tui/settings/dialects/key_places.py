"""Finds the keys of a file that are a dialect's under another name or in another section."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

from tuner_tui.settings.dialects.dialect import Dialect, leaf_pattern
from tuner_tui.settings.dialects.nested_values import TEMPLATE
from tuner_tui.settings.dialects.purpose import says_training
from tuner_tui.settings.dialects.script_search import words_of
from tuner_tui.settings.model import FIELDS

FREE = re.IGNORECASE | re.VERBOSE


def without_disabled(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The values without those of sections that a switch among them turns off: `megatron: {enabled: false}`."""
    switch, none = rf".*\.({'|'.join(words_of('section_switches'))})", ("false", "none")
    off = {key for key, value in flat.items() if str(value).lower() in none and re.fullmatch(switch, key)}
    sections = tuple(key[: key.rfind(".") + 1] for key in off)
    return {key: value for key, value in flat.items() if key in off or not key.startswith(sections)}


def keys_in_file(dialect: Dialect, flat: Mapping[str, Any], agreeing: bool = False) -> dict[str, str]:
    """The dialect's keys to those that the file has in their places, by `leaves`.

    With `agreeing`, one of several with the same value counts: enough to read it, not to change it.
    """
    keys: dict[str, str] = {}
    flat = without_other_meanings(flat)
    settings = {key: name for name, key in dialect.names.items()}
    only_with, switch = words_of("only_with"), "|".join(words_of("section_switches"))
    # A key that has a value, or a name like it as a value: `train_lora.py`.
    texts = [key for key, value in flat.items() if value not in (None, "")]
    texts += [value for value in flat.values() if isinstance(value, str)]
    spelled = {path: re.sub(r"(?<=[a-z])(?=[A-Z])|[- ]", "_", path) for path in flat}  # `batchSize` is `batch_size`
    for key, leaves in dialect.leaves.items():
        name = settings.get(key, key)
        if key in flat and _suits(name, flat[key]):
            continue
        other_sections = _other_sections(name)
        is_switch = name in FIELDS and FIELDS[name].kind == "bool"
        # Leaves are in order of certainty, and the first that occurs decides: `optimizer.lr` before `lr`.
        for leaf in leaves:
            if leaf in only_with and not any(re.search(only_with[leaf], text) for text in texts):
                continue
            ends = leaf_pattern(f"(?:{leaf})(?:.(?:{switch}))?" if is_switch else leaf)
            ending = [
                path
                for path, snake in spelled.items()
                if (ends.search(snake) or (snake != path and ends.search(path)))
                and not other_sections.search(path.lower()[: path.rfind(".") + 1])
                and _suits(name, flat[path])
            ]
            places = _likeliest(name, ending, flat)
            if len(places) == 1 or (agreeing and len({str(flat[path]) for path in places}) == 1):
                keys[key] = min(places, key=lambda path: re.search(words_of("of_training"), path.lower()) is None)
            if ending:
                break  # of several, none is known to be meant
    return keys


@cache
def _other_sections(name: str) -> re.Pattern[str]:
    """The sections in which a key for the setting `name` is of something else."""
    evaluation = [] if "eval" in name else [words_of("evaluation")]
    return re.compile("|".join([words_of("other_use"), *words_of("elsewhere").get(name, ()), *evaluation]))


def _likeliest(name: str, paths: Sequence[str], flat: Mapping[str, Any]) -> list[str]:
    """Which of several keys for a setting train.

    Nobody knows, unless all but one repeat it in a variant, or one alone is in a section of the training or of the
    setting, or nearest to the top.
    """
    literal = [path for path in paths if why_left_open(path, flat[path]) is None]
    base = min(paths, key=len, default="")
    if all(path.lower().endswith(f".{base.lower()}") for path in paths if path != base):
        literal = [base] if base in literal else []  # others replace it in a variant: `profiles.full.train.lr`
    if len({str(flat[path]) for path in literal}) < 2:
        return literal
    for sections in (words_of("of_training"), words_of("sections_of").get(name, "^$")):
        inner = [path for path in literal if re.search(sections, path.lower())]
        literal = inner if len(inner) == 1 else literal
    highest = min(path.count(".") for path in literal)
    return [path for path in literal if path.count(".") == highest]


def without_other_meanings(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The values without those whose name means something else next to another key, or that belong to one stage.

    One whose other meaning has a name is under that name.
    """
    gone: set[str] = set()
    meant: dict[str, Any] = {}
    for row, key in product(words_of("not_next_to"), flat):
        section, dot, name = key.rpartition(".")
        if re.fullmatch(row["names"], name, re.IGNORECASE):
            pattern = row["next_to"].replace("{section}", re.escape(section + dot))
            neighbours = [neighbour for neighbour in flat if re.search(pattern, neighbour, FREE)]
            if row.get("same_value"):
                neighbours = [neighbour for neighbour in neighbours if flat[neighbour] == flat[key]]
            if neighbours:
                gone.add(key)
                meant |= {f"{section}{dot}{row['means']}": flat[key]} if "means" in row else {}
    stage = re.compile(rf"((?:.*\.)?)({words_of('stages')})\.(.+)")
    of_stages = {key: match.groups() for key in flat if (match := stage.fullmatch(key)) is not None}
    named = {str(value).lower() for key, value in flat.items() if re.search(r"(?:^|[._])(?:method|stage)$", key)}
    is_named = any(re.fullmatch(words_of("stages"), name) for name in named)
    parts = {*of_stages.values()}
    trained = {(above, name) for key, (above, name, _) in of_stages.items() if says_training({key: None})}
    for key, (above, name, inner) in of_stages.items():
        others = {other for section, other in trained if section == above} - {name}
        alone = others and not any((above, other, inner) in parts for other in others)
        if (is_named and name.lower() not in named) or alone:
            gone.add(key)
    return {key: value for key, value in flat.items() if key not in gone} | meant


def _suits(name: str, value: object) -> bool:
    """Whether a value is of the type of the setting: a batch of `{size: 4}`, or one switched on, is no number."""
    if value == "":
        return False
    if name not in FIELDS or value is None or (isinstance(value, str) and why_left_open(name, value)):
        return not isinstance(value, Mapping)
    kind, least = FIELDS[name].kind, words_of("least").get(name, 0)
    if kind in ("int", "float"):
        try:
            number = -1.0 if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return False
        return bool(number > least if FIELDS[name].above_minimum else number >= least)
    return isinstance(value, bool | int | str if kind in ("bool", "choice") else str)


def why_left_open(key: str, value: object) -> str | None:
    """Why the file does not determine a value here; None if it does."""
    if not isinstance(value, str):
        return None
    if value.strip().lower() == "auto" and not (key in FIELDS and "auto" in FIELDS[key].choices):
        return "chosen by the tool at start"
    if key.endswith("_token"):  # </s> and its like are values
        return None
    return "filled in at start" if TEMPLATE.fullmatch(value.strip()) else None
