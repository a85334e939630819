"""Settings from all their sources, each value with the place it came from.

Flags win over the environment (`TUNER_<FIELD>`), that over `./tuner.yaml`, that over the preset. What is recommended
for the box (`advice.recommend`) fills in what none of them gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tuner_tui.settings.errors import FieldError, SettingsError
from tuner_tui.settings.fields import FIELDS, Value, closest_match, parse_value, shorten_text, spec_of
from tuner_tui.settings.model import Settings
from tuner_tui.settings.origin import Origin, OriginKind, Resolved
from tuner_tui.settings.presets.parser import load_preset
from tuner_tui.settings.presets.preset import Preset

ENVIRONMENT_PREFIX = "TUNER_"
PROJECT_FILE = "tuner.yaml"


def resolve(
    *,
    flags: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    project: Path | None = None,
    preset: Preset | None = None,
) -> Resolved:
    """The settings and the origin of each. A bad value raises `SettingsError` that names its source.

    `flags`: name to text as typed (see `parse_flags`). `environment`: all variables, of which those that
    name a field are read. `project`: the project file; one that is not there is passed over.
    """
    layers = (
        _preset_layer(preset),
        _project_layer(project),
        _environment_layer(environment or {}),
        _flag_layer(flags or {}),
    )
    values: dict[str, Value] = {}
    origins: dict[str, Origin] = {}
    for layer in layers:
        for name, (value, origin) in layer.items():
            values[name], origins[name] = value, origin
    return Resolved(Settings.model_validate(values), origins)


def parse_flags(words: Iterable[str]) -> dict[str, str]:
    """`name=text` words of `--set` as a mapping; raises `SettingsError` without `=` or such a field."""
    flags: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise SettingsError(f"--set {shorten_text(word)}: write name=value, such as learning_rate=1e-5")
        flags[_checked_name(name.strip().replace("-", "_"), "--set")] = text
    return flags


_Layer = Mapping[str, tuple[Value, Origin]]


def _preset_layer(preset: Preset | None) -> _Layer:
    if preset is None:
        return {}
    return {name: (value, Origin(OriginKind.PRESET, preset.name)) for name, value in preset.settings.items()}


def _project_layer(path: Path | None) -> _Layer:
    if path is None or not path.is_file():
        return {}
    settings = load_preset(path).preset.settings
    return {name: (value, Origin(OriginKind.PROJECT, str(path))) for name, value in settings.items()}


def _environment_layer(variables: Mapping[str, str]) -> _Layer:
    layer: dict[str, tuple[Value, Origin]] = {}
    for variable, text in variables.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if name in FIELDS:
            layer[name] = (_parse_from(name, text, variable), Origin(OriginKind.ENVIRONMENT, variable))
        elif (near := closest_match(name, FIELDS, cutoff=0.85)) is not None:
            right = f"{ENVIRONMENT_PREFIX}{near.upper()}"
            raise SettingsError(f"environment variable {shorten_text(variable)} is no setting; did you mean {right}?")
    return layer


def _flag_layer(flags: Mapping[str, str]) -> _Layer:
    layer: dict[str, tuple[Value, Origin]] = {}
    for name, text in flags.items():
        layer[_checked_name(name, "--set")] = (
            _parse_from(name, text, "--set"),
            Origin(OriginKind.FLAG, f"--set {name}"),
        )
    return layer


def _checked_name(name: str, source: str) -> str:
    try:
        spec_of(name)
    except FieldError as error:
        raise FieldError(name, f"{source}: {error}") from None
    return name


def _parse_from(name: str, text: str, source: str) -> Value:
    try:
        return parse_value(name, text)
    except FieldError as error:
        raise FieldError(name, f"{source}: {error}") from None
