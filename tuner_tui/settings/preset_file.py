"""Preset files: settings and a job as YAML, read and written."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import yaml
from msgspec import Meta, Struct, field, structs, to_builtins
from msgspec.structs import replace

from tuner_tui.core.files import make_private, read_regular, write_durable
from tuner_tui.hardware.capabilities import parse_capability
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.settings.dialects.dialect import HF, Dialect
from tuner_tui.settings.dialects.dialect_choice import dialect_of_file
from tuner_tui.settings.dialects.hf import PRESET_SPELLINGS
from tuner_tui.settings.errors import FieldError, PresetError, PresetExistsError
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job, without_hydra
from tuner_tui.settings.model import Value, check_value, parse_section, parse_value, shorten_text
from tuner_tui.settings.yaml_reader import ToolFile, texts_of

PRESET_VERSION = 1
NO_GPU = "no GPU"


class HardwareRequirements(Struct, frozen=True, forbid_unknown_fields=True):
    """Hardware that a preset was made for. None means any."""

    gpu: Annotated[str, Meta(min_length=1, description="a name pattern such as *RTX 3090*, or none")] | None = None
    min_memory_gib: Annotated[float, Meta(gt=0, le=100_000)] | None = None
    min_gpus: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    capability: Annotated[str, Meta(pattern=r"^\d{1,2}\.\d\Z", description="a version such as 8.0")] | None = None
    min_cores: Annotated[int, Meta(ge=1, le=100_000)] | None = None

    @property
    def for_no_gpu(self) -> bool:
        """Whether the preset is for machines without a GPU."""
        return self.gpu is not None and self.gpu.lower() == "none"

    def gpu_text(self) -> str:
        """The GPUs as text, such as `8 GPUs with 80 GiB or more`; empty if any suit."""
        if self.for_no_gpu:
            return NO_GPU
        name = _pattern_text(self.gpu) if self.gpu else "GPU" if self.min_gpus else "a GPU"
        memory = f" with {self.min_memory_gib:g} GiB or more" if self.min_memory_gib else ""
        many = f"{self.min_gpus} {name}s" if self.min_gpus and self.min_gpus > 1 else name
        return f"{many}{memory}" if memory or self.gpu or self.min_gpus else ""

    def suits(self, gpus: tuple[Gpu, ...], cores: int | None = None) -> bool:
        """Whether a machine with these GPUs and usable cores suits; unknown values count as suitable."""
        if self.min_cores is not None and cores is not None and cores < self.min_cores:
            return False
        if self.for_no_gpu:
            return not gpus
        if self.gpu is None and self.min_memory_gib is None and self.min_gpus is None and self.capability is None:
            return True
        return sum(self._suits_gpu(gpu) for gpu in gpus) >= (self.min_gpus or 1)

    def lacking(self, gpus: tuple[Gpu, ...], cores: int | None, any_memory: bool) -> str:
        """What a machine lacks, such as `8 CPU cores`; empty if it suits. `any_memory`: that of the GPUs is enough."""
        needed = replace(self, min_memory_gib=None) if any_memory else self
        if needed.suits(gpus, cores):
            return ""
        return needed.gpu_text() if not needed.suits(gpus) else f"{self.min_cores} CPU cores"

    def _suits_gpu(self, gpu: Gpu) -> bool:
        if self.gpu is not None and not fnmatchcase(gpu.name.lower(), self.gpu.lower()):
            return False
        least = None if self.capability is None else parse_capability(self.capability)
        if least is not None and gpu.capability is not None and gpu.capability < least:
            return False
        total = gpu.memory_total_bytes
        # Drivers report a 24 GiB GPU as 23.7 to 24.0 GiB: allow 5 % less.
        return self.min_memory_gib is None or total is None or total >= self.min_memory_gib * 0.95 * 2**30


def _pattern_text(pattern: str) -> str:
    """`RTX 3090 or 4090` for the pattern `*RTX [34]090*`."""
    spelt = re.sub(
        r"(\w*)\[(\w+)\](\w*)",
        lambda match: " or ".join(f"{match[1]}{character}{match[3]}" for character in match[2]),
        pattern,
    )
    return spelt.strip("*").replace("*", "…")


class Preset(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One preset file. `settings` holds only the values in the file.

    `source` is that of the numbers; `before` and `after` were measured without and with these settings.
    """

    version: Annotated[int, Meta(ge=1)] = PRESET_VERSION
    name: Annotated[str, Meta(min_length=1, max_length=100, description="text of 1 to 100 characters")]
    about: str | None = None
    for_: HardwareRequirements | None = field(name="for", default=None)
    source: str | None = None
    before: str | None = None
    after: str | None = None
    settings: dict[str, Value] = {}
    job: Job | None = None

    def variant(self, name: str, settings: Mapping[str, Value]) -> Preset:
        """A copy with another name and these settings, without measured figures if the settings differ."""
        copy = structs.replace(self, name=name, settings=dict(settings))
        return copy if copy.settings == self.settings else structs.replace(copy, before=None, after=None)


def _read_setting(name: str, value: Any) -> Value:
    if name in PRESET_SPELLINGS:
        raise FieldError(name, f"unknown setting '{name}'; in a preset it is written {PRESET_SPELLINGS[name]}")
    if isinstance(value, list | dict):
        raise FieldError(name, f"{name} must be a single value, not a list or mapping")
    return parse_value(name, value or "") if isinstance(value, str | None) else check_value(name, value)


PRESET_KEYS = frozenset({field.encode_name for field in structs.fields(Preset)} | {"hosts"})


def is_preset(values: Mapping[str, Any]) -> bool:
    """Whether half of the keys or more are those of a preset: files of tools have `version` and `settings`, too."""
    keys = PRESET_KEYS & values.keys()
    if 2 * len(keys) < len(values):
        return False
    if keys & {"settings", "job", "hosts"} and not isinstance(values.get("job"), str):
        return True
    return isinstance(values.get("version"), int | str) and dialect_of_file(values).name == HF


class LoadedPreset(Struct, frozen=True):
    """A preset, its file, and warnings for the user (keys ignored, names translated).

    Of a tool's file, `dialect` is the tool's, `ignored` names the keys that are no setting, `left_open` what the tool
    chooses when it starts (`bf16: auto`), and `training` what it trains where it shows no command: a job for advice.
    `sources` names the other files of its command that say settings which it does not.
    """

    preset: Preset
    path: Path | None = None
    notes: tuple[str, ...] = ()
    dialect: Dialect | None = None
    ignored: tuple[str, ...] = ()
    left_open: tuple[str, ...] = ()
    training: CommandJob | None = None
    sources: Mapping[str, str] = MappingProxyType({})


def default_name(path: Path | None) -> str:
    return (path.stem if path else "")[:100] or "preset"


def read_preset(file: ToolFile, source: str, fallback_name: str) -> Preset:
    """The preset in a YAML file; `source` names it in errors. Raises `PresetError` with the line."""
    values, lines = texts_of(file, source)

    def refused(path: Sequence[str], sentence: str) -> PresetError:
        """An error with the line of the innermost key of `path` that the file has."""
        line = next(lines[key] for end in range(len(path), -1, -1) if (key := tuple(path[:end])) in lines)
        return PresetError(f"{source}:{line}: {sentence}")

    version = values.get("version")
    if version is not None and not (isinstance(version, str) and re.fullmatch(r"[0-9]{1,9}", version.strip())):
        raise refused(("version",), "version must be a whole number")
    if version is not None and int(version) > PRESET_VERSION:
        newer = f"preset version {int(version)} is newer than the supported {PRESET_VERSION}"
        raise refused(("version",), f"{newer}: upgrade tuner-tui")
    # `hosts` is for `tuner-tui watch HOST…`
    given = {"name": fallback_name} | {key: text for key, text in values.items() if text is not None and key != "hosts"}
    texts, problems = given.get("settings", {}), []
    if not isinstance(texts, dict):
        raise refused(("settings",), "settings must contain `name: value` lines")
    given["settings"] = settings = dict[str, Value]()
    for name, value in texts.items():
        try:
            settings[name] = _read_setting(name, value)
        except FieldError as error:
            problems.append(str(refused(("settings", error.field), str(error))))
    if problems:
        raise PresetError("\n".join(problems))
    for key, read in (("for", lambda texts: parse_section(HardwareRequirements, texts, "for")), ("job", _read_job)):
        if key in given:
            if not isinstance(given[key], dict):
                raise refused((key,), f"'{key}' must contain `key: value` lines")
            try:
                given[key] = read(given[key])
            except FieldError as error:
                raise refused((key, error.field), str(error)) from None
    try:
        return parse_section(Preset, given)
    except FieldError as error:
        raise refused((error.field,), str(error)) from None


def _read_job(texts: dict[str, Any]) -> Job:
    kind = texts.pop("kind", "builtin")
    if kind not in ("builtin", "command"):
        raise FieldError("kind", f"unknown kind of job '{shorten_text(str(kind))}'; use builtin or command")
    texts = without_hydra(texts)
    return parse_section(CommandJob, texts, "job") if kind == "command" else parse_section(BuiltinJob, texts, "job")


def dump_preset(preset: Preset) -> str:
    """The preset as YAML. Numbers are written so that every YAML tool reads them as numbers (`1.0e-05`)."""
    data = {key: part for key, part in to_builtins(preset).items() if part not in (None, {})}
    for key in {"for", "job"} & data.keys():
        data[key] = {name: value for name, value in data[key].items() if value not in (None, {})}
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def save_preset(preset: Preset, path: Path, *, overwrite: bool = False, source: Path | None = None) -> None:
    """Write `preset` to `path` atomically, in the style of the file there, or else of `source`.

    Raises `PresetExistsError` if it exists and `overwrite` is False, `PresetError` if it cannot be written.
    """
    try:
        styled = path if path.exists() else source
        old = b"" if styled is None else read_regular(styled, follow_links=True)
        content = dump_preset(preset).encode().replace(b"\n", b"\r\n" if b"\r\n" in old else b"\n")
        content = BOM_UTF8 + content if old.startswith(BOM_UTF8) else content
        make_private(path.parent)
        write_durable(path, content, overwrite)
    except FileExistsError:
        if not path.parent.is_dir():
            raise PresetError(f"{path}: {path.parent} is not a folder") from None
        raise PresetExistsError(f"{path} already exists") from None
    except OSError as error:
        raise PresetError(f"{path} cannot be written: {error.strerror or error}") from None


def is_measured(preset: Preset) -> bool:
    """Whether the tuning notes that came with the program measured it."""
    return (preset.source or "").startswith("tuning notes")


class _Dumper(yaml.SafeDumper):
    """Writes text with unprintable characters in double quotes: PyYAML's other styles lose U+0085 and the like."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"'
    ),
)
