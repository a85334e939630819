"""Hydra's defaults list: the files of the groups that a primary configuration is composed of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.yaml_reader import parse_tool_text, read_text

SELF = "_self_"
GLOBAL_PACKAGE = "@package _global_"
HEADER_BYTES = 500
FOLDERS_UP = 3
"""How far above a file its groups are looked for: an experiment lies in a group itself."""
MOST_FILES, MOST_LEVELS = 100, 6


def compose(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """`values` of the file at `path` merged with those of its defaults list; files that cannot be read are left out."""
    return _composed(values, path, 0, [])


def is_experiment(path: Path) -> bool:
    """Whether the file is chosen by its group on the command line: it changes the whole configuration from there."""
    chosen = re.compile(rf"^\s*-\s+(optional\s+)?{re.escape(path.absolute().parent.name)}\s*:", re.MULTILINE)
    try:
        above = path.absolute().parent.parent.glob("*.yaml")
        return GLOBAL_PACKAGE in read_text(path)[:HEADER_BYTES] and any(chosen.search(read_text(one)) for one in above)
    except PresetError:
        return False


def _composed(values: Mapping[str, Any], path: Path, level: int, read: list[Path]) -> dict[str, Any]:
    own = {key: value for key, value in values.items() if key != "defaults"}
    defaults = values.get("defaults")
    if not isinstance(defaults, list):
        return own
    merged: dict[str, Any] = {}
    for entry in defaults if SELF in defaults else [*defaults, SELF]:
        if entry == SELF:
            _merge(merged, own)
            continue
        for group, name in _choices(entry):
            found = _find(path, group, name)
            if found is None or found in read or len(read) >= MOST_FILES or level >= MOST_LEVELS:
                continue
            read.append(found)
            _merge(merged, _part(found, group, level, read))
    return merged


def _choices(entry: object) -> Iterator[tuple[str, str]]:
    """Group and name of each file that an entry chooses: `{data: mnist}`, `{override /data: mnist}`, `base`."""
    if isinstance(entry, str):
        yield "", entry.removeprefix("optional ")
    elif isinstance(entry, Mapping):
        for key, value in entry.items():
            group = str(key).removeprefix("override ").removeprefix("optional ").partition("@")[0].strip("/ ")
            for name in value if isinstance(value, list) else [value]:
                if isinstance(name, str):
                    yield group, name


def _find(path: Path, group: str, name: str) -> Path | None:
    file = Path(group, name if name.endswith(".yaml") else f"{name}.yaml")
    places = (folder / file for folder in [*path.absolute().parents][: FOLDERS_UP + 1])
    return next((one for one in places if one.is_file() and one != path.absolute()), None)


def _part(path: Path, group: str, level: int, read: list[Path]) -> dict[str, Any]:
    """The values of one file of a group, in the section of the group."""
    try:
        text = read_text(path)
        values: dict[str, Any] = _composed(parse_tool_text(text, str(path)).values, path, level + 1, read)
    except PresetError:
        return {}
    if GLOBAL_PACKAGE in text[:HEADER_BYTES]:
        return values
    for section in reversed([name for name in group.split("/") if name]):
        values = {section: values}
    return values


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        inner = into.get(key)
        if isinstance(inner, dict) and isinstance(value, Mapping):
            _merge(inner, value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value
