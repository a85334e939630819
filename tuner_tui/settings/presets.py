"""The presets of this machine: found, listed and loaded. A training tool's own file is opened as one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace
from platformdirs import user_config_path

import tuner_tui
from tuner_tui.core.ownership import require_unshared
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.settings.dialects.file_formats import parse_file, read_file_text, with_bases
from tuner_tui.settings.dialects.job_files import parse_tool_file
from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.file_sources import without_unread
from tuner_tui.settings.model import closest_match, shorten_text
from tuner_tui.settings.preset_file import (
    HardwareRequirements,
    LoadedPreset,
    default_name,
    is_measured,
    is_preset,
    read_preset,
)
from tuner_tui.settings.tool_choice import names_tool_file
from tuner_tui.settings.tool_file import import_tool_file

SUFFIXES = (".yaml", ".yml")


def load_preset(
    path: Path, options: Mapping[str, object] = MappingProxyType({}), programs: Sequence[Path] = ()
) -> LoadedPreset:
    """Read a preset or a tool's file: configuration that one of `programs` reads, script with `options`, any other.

    Raises `PresetError` with file and line.
    """
    text = read_file_text(path)
    if path.suffix.lower() in (*SUFFIXES, ""):
        return parse_preset(text, str(path), path, programs)
    file = parse_file(text, path, options)
    return import_tool_file(replace(file, values=without_unread(file.values, programs)), str(path), path)


def parse_preset(text: str, source: str, path: Path | None = None, programs: Sequence[Path] = ()) -> LoadedPreset:
    """Read a preset, or a tool's configuration, from YAML `text`; `source` names it in errors."""
    file = parse_tool_file(text, source)
    if not file.kind and is_preset(file.values):
        return LoadedPreset(read_preset(file, source, default_name(path)), path)
    values = without_unread(with_bases(file.values, path or Path()), programs)
    return import_tool_file(replace(file, values=values), source, path)


FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


class PresetEntry(Struct, frozen=True):
    """A preset file: its name, and either the loaded preset or why it cannot be read.

    `suits`: it was made for this machine.
    """

    name: str
    path: Path
    loaded: LoadedPreset | None = None
    problem: str | None = None
    suits: bool = False

    @property
    def about(self) -> str:
        """What the preset says of itself, on one line."""
        return "" if self.loaded is None else " ".join((self.loaded.preset.about or "").split())

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
    return any((shipped_folder() / f"{name}{suffix}").is_file() for suffix in SUFFIXES)


def user_folder() -> Path:
    return user_config_path("tuner-tui") / "presets"


def preset_path(name: str) -> Path:
    """The file of the user's preset `name`. Raises `PresetError` for a name with characters other than a word's."""
    if not FILE_NAME.fullmatch(name):
        raise PresetError(f"'{shorten_text(name)}' is not a preset name: use letters, digits, dot, dash and underscore")
    return user_folder() / f"{name.removesuffix('.yaml')}.yaml"


def list_presets(folders: Sequence[Path] | None = None) -> tuple[PresetEntry, ...]:
    """All presets of the folders, sorted by name; a file that cannot be read is listed with its problem."""
    return tuple(_load_entry(path) for _, path in sorted(_preset_files(folders).items()))


def preset_names() -> tuple[str, ...]:
    return tuple(sorted(_preset_files(None)))


def suiting_first(
    entries: Sequence[PresetEntry], gpus: tuple[Gpu, ...], cores: int | None = None
) -> tuple[PresetEntry, ...]:
    """The entries, marked where one was made for this machine: these first, those of the notes last.

    What uses more of the GPUs that there are stands before what would also do with less.
    """
    ranked = []
    for entry in entries:
        preset = None if entry.loaded is None else entry.loaded.preset
        hardware = HardwareRequirements() if preset is None or preset.for_ is None else preset.for_
        # A preset for any hardware was not made for this machine's.
        suits = hardware.gpu is not None and hardware.suits(gpus, cores)
        needed = (hardware.min_memory_gib or 0.0) * (hardware.min_gpus or 1) * hardware.suits(gpus, cores)
        rank = (not suits, -needed, preset is not None and is_measured(preset))
        ranked.append((rank, replace(entry, suits=suits)))
    return tuple(entry for _, entry in sorted(ranked, key=lambda pair: pair[0]))


def find_preset(name_or_path: str, folders: Sequence[Path] | None = None) -> LoadedPreset:
    """The preset of that name, or in that file. Raises `PresetError`, which suggests the closest name."""
    if "/" in name_or_path or names_tool_file(name_or_path):
        return load_preset(Path(name_or_path).expanduser())
    files = _preset_files(folders)
    if name_or_path in files:
        return _load_safely(files[name_or_path])
    near = closest_match(name_or_path, files)
    alike = [near] if near else [name for name in files if name_or_path and name_or_path.lower() in name]
    hint = f"; did you mean {', '.join(map(repr, alike))}?" if alike else "; `tuner-tui presets list` shows all presets"
    raise PresetError(f"no preset or configuration file '{shorten_text(name_or_path)}'{hint}")


def _load_entry(path: Path) -> PresetEntry:
    try:
        return PresetEntry(path.stem, path, _load_safely(path))
    except PresetError as error:
        return PresetEntry(path.stem, path, problem=str(error))


def _load_safely(path: Path) -> LoadedPreset:
    """The preset. Raises `PresetError` if another user may change it: its `job.command` runs as this user."""
    if path.parent != shipped_folder():
        try:
            for part in (path.parent, path):
                require_unshared(part)
        except OSError as error:
            raise PresetError(f"{error.filename}: {error.strerror}") from None
    return load_preset(path)


def _preset_files(folders: Sequence[Path] | None) -> dict[str, Path]:
    """The preset files by name; a name in an earlier folder hides the same name in a later one."""
    files: dict[str, Path] = {}
    for folder in (user_folder(), shipped_folder()) if folders is None else folders:
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            continue
        for path in entries:
            if path.suffix in SUFFIXES and not path.name.startswith("."):
                files.setdefault(path.stem, path)
    return files
