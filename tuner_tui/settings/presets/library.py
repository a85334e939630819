"""Preset files on disk: find, list, save."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from platformdirs import user_config_path

import tuner_tui
from tuner_tui.core.files import make_private, shared_with
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.settings.dialects.file_formats import SCRIPT_FORMS
from tuner_tui.settings.errors import PresetError, PresetExistsError
from tuner_tui.settings.fields import closest_match, shorten_text
from tuner_tui.settings.presets.preset import LoadedPreset, Preset, load_preset

SUFFIXES = (".yaml", ".yml")
TOOL_FILE_SUFFIXES = (*SUFFIXES, ".json", ".toml", *SCRIPT_FORMS)
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True, slots=True)
class PresetEntry:
    """A preset file: its name, and either the loaded preset or why it cannot be read."""

    name: str
    path: Path
    loaded: LoadedPreset | None = None
    problem: str | None = None

    @property
    def yours(self) -> bool:
        """Whether it is the user's own, not one that comes with the program."""
        return self.path.parent != shipped_folder()

    @property
    def hides_shipped(self) -> bool:
        """Whether it is used in place of a preset of that name that comes with the program."""
        return self.yours and is_shipped(self.name)


def shipped_folder() -> Path:
    """The folder of the presets that come with the program: inside the package in a wheel, next to it in a checkout."""
    package = Path(tuner_tui.__file__).parent
    inside = package / "presets"
    return inside if inside.is_dir() else package.parent / "presets"


def is_shipped(name: str) -> bool:
    """Whether a preset of that name comes with the program."""
    return any((shipped_folder() / f"{name}{suffix}").is_file() for suffix in SUFFIXES)


def user_folder() -> Path:
    """The folder of the user's own presets."""
    return user_config_path("tuner-tui") / "presets"


def preset_folders() -> tuple[Path, ...]:
    """The folders searched for presets; a name in an earlier one hides the same name in a later one."""
    return user_folder(), shipped_folder()


def dump_preset(preset: Preset) -> str:
    """The preset as YAML. Numbers are written so that every YAML tool reads them as numbers (`1.0e-05`)."""
    data = preset.model_dump(mode="json", by_alias=True, exclude_none=True)
    data["settings"] = dict(preset.settings)
    if not preset.settings:
        del data["settings"]
    ordered: dict[str, Any] = {"version": data.pop("version"), "name": data.pop("name"), **data}
    return yaml.dump(ordered, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def save_preset(preset: Preset, path: Path, *, overwrite: bool = False) -> None:
    """Write `preset` to `path` atomically.

    Raises `PresetExistsError` if the file exists and `overwrite` is False, `PresetError` if it cannot be written; an
    existing file is then unchanged.
    """
    try:
        content = dump_preset(preset).encode()
        make_private(path.parent)
        write_durable(path, content, overwrite)
    except FileExistsError:
        if not path.parent.is_dir():
            raise PresetError(f"{path}: {path.parent} is not a folder") from None
        raise PresetExistsError(f"{path} already exists") from None
    except OSError as error:
        raise PresetError(f"{path} cannot be written: {error.strerror or error}") from None


def preset_path(name: str) -> Path:
    """The file of the user's preset `name`. Raises `PresetError` for a name with characters other than a word's."""
    if not FILE_NAME.fullmatch(name):
        raise PresetError(f"'{shorten_text(name)}' is not a preset name: use letters, digits, dot, dash and underscore")
    return user_folder() / f"{name.removesuffix('.yaml')}.yaml"


def list_presets(folders: Sequence[Path] | None = None) -> tuple[PresetEntry, ...]:
    """All presets of the folders, sorted by name; a file that cannot be read is listed with its problem."""
    files = _preset_files(folders)
    return tuple(_load_entry(files[name]) for name in sorted(files))


def preset_names() -> tuple[str, ...]:
    """The names of all presets, whether they can be read or not."""
    return tuple(sorted(_preset_files(None)))


def made_for(preset: Preset, gpus: tuple[Gpu, ...], cores: int | None = None) -> bool:
    """Whether the preset names this machine's hardware, and not any: one of its GPUs, or that it has none."""
    hardware = preset.for_
    return hardware is not None and hardware.gpu is not None and hardware.suits(gpus, cores)


def suiting_first(
    entries: Sequence[PresetEntry], gpus: tuple[Gpu, ...], cores: int | None = None
) -> tuple[tuple[PresetEntry, bool], ...]:
    """The entries, and whether each was made for this machine; these come first, the one for most memory before."""

    def least_memory(entry: PresetEntry) -> float:
        hardware = entry.loaded.preset.for_ if entry.loaded else None
        return (hardware.min_memory_gib if hardware else None) or 0.0

    marked = [(entry, entry.loaded is not None and made_for(entry.loaded.preset, gpus, cores)) for entry in entries]
    return tuple(sorted(marked, key=lambda one: (not one[1], -least_memory(one[0]) if one[1] else 0.0)))


def find_preset(name_or_path: str, folders: Sequence[Path] | None = None) -> LoadedPreset:
    """The preset of that name, or in that file. Raises `PresetError`, which suggests the closest name."""
    if "/" in name_or_path or name_or_path.endswith(TOOL_FILE_SUFFIXES):
        return load_preset(Path(name_or_path).expanduser())
    files = _preset_files(folders)
    if name_or_path in files:
        return _load_safely(files[name_or_path])
    near = closest_match(name_or_path, files)
    hint = f"; did you mean '{near}'?" if near else "; `tuner-tui presets list` shows all"
    raise PresetError(f"no preset '{shorten_text(name_or_path)}'{hint}")


class _Dumper(yaml.SafeDumper):
    """Writes text with unprintable characters in double quotes: PyYAML's other styles lose U+0085 and the like."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_Dumper.add_representer(str, _represent_text)


def _load_entry(path: Path) -> PresetEntry:
    try:
        return PresetEntry(path.stem, path, _load_safely(path))
    except PresetError as error:
        return PresetEntry(path.stem, path, problem=str(error))


def _load_safely(path: Path) -> LoadedPreset:
    """The preset. Raises `PresetError` if another user may change it: its `job.command` runs as this user."""
    if path.parent != shipped_folder():
        for place in (path.parent, path):
            _check_unshared(place)
    return load_preset(path)


def _check_unshared(place: Path) -> None:
    try:
        others = shared_with(place)
    except OSError as error:
        raise PresetError(f"{place}: {error.strerror}") from None
    if others is not None:
        raise PresetError(
            f"{place} may be changed by {others}, and its commands would run as you. Run `chmod go-w "
            f"{place}`, or copy the preset to your own folder and use that file"
        )


def _preset_files(folders: Sequence[Path] | None) -> dict[str, Path]:
    """The files of all folders by preset name."""
    files: dict[str, Path] = {}
    for folder in preset_folders() if folders is None else folders:
        try:
            found = sorted(folder.iterdir())
        except OSError:
            continue
        for path in found:
            if path.suffix in SUFFIXES and not path.name.startswith("."):
                files.setdefault(path.stem, path)
    return files


def write_durable(path: Path, content: bytes, overwrite: bool) -> None:
    """Write a file atomically and sync it to disk; a file replaced keeps its permissions.

    Raises `FileExistsError` unless `overwrite`.
    """
    folder = path.resolve().parent if overwrite else path.parent
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name[:40]}-", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            if path.exists():
                shutil.copymode(path, temporary)
            temporary.replace(path.resolve())  # replaces the target of a symbolic link, not the link
        else:
            _link_new(temporary, path)
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    finally:
        temporary.unlink(missing_ok=True)


def _link_new(temporary: Path, path: Path) -> None:
    try:
        # A hard link fails if the name is taken, so of two writers only one succeeds.
        path.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no hard links.
        if path.exists():
            raise FileExistsError(path) from None
        temporary.replace(path)
