"""Hydra 1.3: the user's own keys, found by what they end with; single values are given as `key=value`.

A configuration is composed of several files: the defaults list of the primary one chooses a file of each group.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from tuner_tui.settings.dialects.file_formats import values_of_file
from tuner_tui.settings.dialects.nested_values import set_nested, unflatten
from tuner_tui.settings.dialects.python_source import TO_GIVE, overlaid
from tuner_tui.settings.dialects.script_search import (
    TRAINING,
    files_in,
    find_script,
    find_scripts,
    names_file,
    needs_launcher,
    read_source,
    source_of,
    trains,
)
from tuner_tui.settings.yaml_reader import read_text

SELF = "_self_"
OVERRIDE = "override "
HEADER_BYTES = 500
FOLDERS_UP = 3
"""How far above a file its groups are looked for: an experiment lies in a group itself."""
MOST_FILES = 100
PRIMARY_STEMS = ("train", "config", "main")


class Group(Struct, frozen=True):
    """The group that a file is one choice of, and the primary configuration that the choice is for."""

    name: str
    primary: Path
    override: str
    """What chooses it on the command line, `optimizer=adam`; `+` adds a group that the primary configuration lacks."""


def group_of(path: Path) -> Group | None:
    """The group of the file at `path`; None for a primary configuration.

    A primary configuration has a defaults list and lies above its groups; the usual names of one count first.
    """
    config = path.absolute()
    # Folder by folder upwards: a group is named by its path below the primary configuration
    # (`conf/optimizer/adam.yaml` is `optimizer=adam` of `conf/config.yaml`), so the first folder with a primary that
    # chooses such a group is the root.
    for above in [*config.parents][1 : FOLDERS_UP + 1]:
        name = config.parent.relative_to(above).as_posix()
        listed = {file: chosen for file in files_in(above, "*.yaml") if (chosen := _chosen_groups(file)) is not None}
        related = {file: chosen for file, chosen in listed.items() if chosen & _with_parents(name)}
        if not related and listed and is_named(next(iter(listed))):
            related = listed  # its files choose the group, as an experiment does
        if related:
            stems = {_decorated(script, source)[1] for script, source in find_scripts(path, HYDRA_MAIN).items()}
            started = [file for file in listed if file.stem in stems]
            primary = min(
                started or related,
                key=lambda file: (not started and name not in listed[file], file.stem not in PRIMARY_STEMS, file.stem),
            )
            groups = _all_groups(primary)
            # A global file below a group that is already chosen is another choice of it: `experiment=cifar/s4`.
            over = max(_with_parents(name) & groups, key=len, default="") if is_global(path) else ""
            override = over or (name if name in groups else f"+{name}")
            inner = config.with_suffix("").relative_to(above / (over or name)).as_posix()
            return Group(name, primary, f"{override}={inner}")
    return None


HYDRA_MAIN = r"@hydra\.main\(|@hydra_runner\("


def is_global(path: Path) -> bool:
    """Whether the file's keys stand at the top of the whole configuration, as its header says."""
    return re.search(r"@package __?global__?\b", read_text(path)[:HEADER_BYTES]) is not None


def is_named(path: Path) -> bool:
    """Whether a script near the file that Hydra starts names it, or its folder, as its configuration."""
    return any(_names_configuration(script, source, path) for script, source in find_scripts(path, HYDRA_MAIN).items())


def configuration_of(script: Path, words: Sequence[str]) -> Path | None:
    """The file that Hydra composes for the script, where its decorator or the words of a command name it."""
    source = read_source(script)
    folder, named = _decorated(script, source)
    chosen = re.search(r"(?<!\S)(?:--config-name|-cn)[ =](\S+)", " ".join(words))
    name = chosen[1].removesuffix(".yaml") if chosen else named
    if not (re.search(HYDRA_MAIN, source) and folder and name):
        return None
    path = (folder / f"{name}.yaml").resolve()
    return path if path.is_file() else None


def _decorated(script: Path, source: str) -> tuple[Path | None, str]:
    """The folder and the name of the configuration in the decorator of a script, where it says them."""
    near = r"(?:str\([\w.()]*Path\(__file__\)[\w.() /]*)?"  # written as a path of the script's folder
    folder = re.search(rf"config_path\s*=\s*{near}[\"'](?!pkg:)([^\"']+)", source)
    name = re.search(r"config_name\s*=\s*[\"']([^\"']+)", source)
    return script.absolute().parent / folder[1] if folder else None, name[1].removesuffix(".yaml") if name else ""


def compose_with(path: Path, overrides: Mapping[str, str]) -> dict[str, Any]:
    """The configuration at `path` with the choices of groups and the values that a command line gives."""
    values = compose(values_of_file(path), path)
    for key, value in overrides.items():
        chosen = path.parent / key / f"{value}.yaml"
        if chosen.is_file():
            values = overlaid(values, _part(chosen, key, [], {}))
        else:
            set_nested(values, key.split("."), value)
    return values


def missing_fields(script: Path, flat: Mapping[str, Any]) -> Iterator[str]:
    """The keys that the classes of a program's configuration leave to be given, and the files lack."""
    text = source_of(script)
    missing = {
        name: re.findall(r"(?m)^\s+(\w+)\s*:[^=\n]+=\s*(?:omegaconf\.)?MISSING\b", body)
        for name, body in re.findall(r"(?ms)^class (\w+)[^\n]*:\n(.*?)(?=^\S|\Z)", text)
    }
    for section, name in dict.fromkeys(re.findall(r"(?m)^\s+(\w+)\s*:\s*(\w+)\b", text)):
        yield from (key for field in missing.get(name, ()) if (key := f"{section}.{field}") not in flat)


def hydra_command(path: Path) -> str | None:
    """The command of the script whose decorator names the file, or its folder, as its configuration.

    A file of a group is its choice for the primary configuration.
    """
    group = group_of(path)
    primary = path if group is None else group.primary
    script = find_script(path, HYDRA_MAIN, lambda _script, source: names_file(source, primary))
    script = script or find_script(path, HYDRA_MAIN, lambda near, source: _names_configuration(near, source, primary))
    if script is None or not (any(TRAINING.search(file.stem) for file in (script, primary)) or trains(script)):
        return None
    starter = "torchrun --standalone" if needs_launcher(script) else "python"
    words = f"{starter} {shlex.quote(str(script))}"
    return f"{words} {shlex.quote(group.override) if group else '--config-path {folder} --config-name {stem}'}"


def _names_configuration(script: Path, source: str, path: Path) -> bool:
    """Whether the source names the file, or its folder and no file there whose keys are mostly different ones."""
    if names_file(source, path):
        return True
    folder, name = _decorated(script, source)
    if folder is None or folder.resolve() != path.absolute().parent.resolve():
        return False
    default = path.parent / f"{name}.yaml" if name else None
    keys = set() if default is None else {*values_of_file(default)}
    shared = keys & {*values_of_file(path)} - {"defaults", "hydra"}
    return default is None or not default.exists() or 0 < len(keys) <= 2 * len(shared)


def compose(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The whole configuration to which the file at `path`, with `values`, belongs; unreadable files are left out.

    A file of a group takes the place of what the primary configuration chooses there.
    """
    # The primary configuration is composed as Hydra does it. Then the opened file takes the place of what it chooses
    # for this group; a global file (`@package _global_`) overrides all of it.
    group = group_of(path)
    composed = _composed(values, path, [], {})
    if group is None:
        return composed
    whole = _composed(values_of_file(group.primary), group.primary, [], {})
    sections = {key for key, value in composed.items() if isinstance(value, Mapping)}
    # Until Hydra 1.1 every file was global: one with several sections of the whole is meant so.
    is_whole = is_global(path) or len(sections & whole.keys()) > 1
    for replaced in (group.name, *((is_whole and _chosen_groups(path, OVERRIDE)) or ())):
        set_nested(whole, replaced.split("/"), None)
    return overlaid(whole, composed if is_whole else unflatten({group.name.replace("/", "."): composed}))


def _all_groups(primary: Path) -> set[str]:
    """The groups of the whole configuration: those that the primary one chooses, and that the chosen files choose."""
    groups, waiting = set[str](), [primary]
    for path in waiting:  # grows while it is read
        groups |= _chosen_groups(path) or set()
        for entry in values_of_file(path).get("defaults") or ():
            for group, name in _choices(entry):
                if (file := _find(path, group, name)) and file not in waiting and len(waiting) < MOST_FILES:
                    waiting.append(file)
    return groups


def _chosen_groups(path: Path, prefix: str = "") -> set[str] | None:
    """The groups that a configuration's defaults list names by keys with `prefix`; None if it has no such list."""
    # Most files of a large checkout have none: reading them as YAML would take long.
    defaults = values_of_file(path).get("defaults") if "defaults" in read_source(path) else None
    if not isinstance(defaults, list):
        return None
    keys = [str(key) for entry in defaults if isinstance(entry, Mapping) for key in entry]
    return {_group_name(key) for key in keys if key.startswith(prefix)}


def _with_parents(name: str) -> set[str]:
    """`module/network` and `module`: a group in a group is chosen by a file of that."""
    parts = name.split("/")
    return {"/".join(parts[: count + 1]) for count in range(len(parts))}


def _group_name(key: str) -> str:
    return key.removeprefix(OVERRIDE).removeprefix("optional ").partition("@")[0].strip("/ ")


def _composed(values: Mapping[str, Any], path: Path, read: list[Path], replaced: Mapping[str, str]) -> dict[str, Any]:
    """`values` over those of the files that its defaults list chooses; `replaced` has the choices overridden above."""
    entries, defaults = {key: value for key, value in values.items() if key != "defaults"}, values.get("defaults")
    if not isinstance(defaults, list):
        return entries
    merged: dict[str, Any] = {}
    choices = [item for entry in defaults if isinstance(entry, Mapping) for item in entry.items()]
    overrides = {_group_name(key): name for key, name in choices if str(key).startswith(OVERRIDE) and name == str(name)}
    replaced = {**overrides, **replaced}
    for entry in defaults if SELF in defaults else [*defaults, SELF]:
        if entry == SELF:
            merged = overlaid(merged, entries)
            continue
        for group, choice in _choices(entry):
            name = replaced.get(group, choice)
            if name == TO_GIVE:
                merged = overlaid(merged, unflatten({group.replace("/", "."): TO_GIVE}))
                continue
            file = _find(path, group, name)
            if file is None and group:  # chosen, in a package that is not here
                merged = overlaid(unflatten({group.replace("/", "."): f"<{name}>"}), merged)
            if file is not None and file not in read and len(read) < MOST_FILES:
                read.append(file)
                merged = overlaid(merged, _part(file, group, read, replaced))
    return merged


def _choices(entry: object) -> Iterator[tuple[str, str]]:
    """Group and name of each file that an entry chooses: `{data: mnist}`, `{override /data: mnist}`, `base`."""
    if isinstance(entry, str):
        group, _, name = entry.removeprefix("optional ").rpartition("/" if "/" in entry[:1] else " ")
        yield _group_name(group), name
    elif isinstance(entry, Mapping):
        for key, value in entry.items():
            names = value if isinstance(value, list) else [value]
            yield from ((_group_name(str(key)), name) for name in names if isinstance(name, str))


def _find(path: Path, group: str, name: str) -> Path | None:
    file, above = f"{group or '.'}/{name.removesuffix('.yaml')}.yaml", [*path.absolute().parents][: FOLDERS_UP + 1]
    return next((chosen for folder in above if (chosen := folder / file).is_file() and chosen != path.absolute()), None)


def _part(path: Path, group: str, read: list[Path], replaced: Mapping[str, str]) -> dict[str, Any]:
    """The values of one file of a group, in the section of the group."""
    values = _composed(values_of_file(path), path, read, replaced)
    return unflatten({group.replace("/", "."): values}) if values and group and not is_global(path) else values
