"""A tool's own names and values for the settings, as data; one reader and one writer for all of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.hf import ExportedSettings, ImportedSettings, from_hf
from tuner_tui.settings.fields import FIELDS, Value
from tuner_tui.settings.model import Settings

WrittenKeys = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one tool spells the settings in its YAML file.

    `names`: setting to key, its value as it is. `words`: setting to value to what is written for that value; a value
    that is not listed goes by `names`, and has no place where there is no name either. `ratio` is the key of a warmup
    given as a share of all steps. `extends_hf`: what neither lists is spelled as in `TrainingArguments`, which the tool
    extends; otherwise it has no place. `marks`: keys by which a file is known to be the tool's. `command` starts it.
    """

    name: str
    tool: str
    command: str
    names: Mapping[str, str]
    words: Mapping[str, Mapping[Value, WrittenKeys]] = field(default_factory=dict)
    ratio: str | None = None
    extends_hf: bool = True
    marks: frozenset[str] = frozenset()


def write_settings(
    dialect: Dialect, settings: Settings, targets: Collection[str] | None, only: Collection[str]
) -> ExportedSettings:
    """The settings `only` in the tool's words. `targets`: the fields of the installed TrainingArguments, if known."""
    values: dict[str, Any] = {}
    missing: list[str] = []
    notes: list[str] = []
    for name in (one for one in FIELDS if one in only):
        written = _written_keys(dialect, name, getattr(settings, name))
        why: tuple[str, ...] = (f"{dialect.tool} has no place for {name} {getattr(settings, name)}",)
        if written is None and dialect.extends_hf and not _defines(dialect, name):
            carried = hf.to_hf(settings, targets, only=[name])
            written, why = None if carried.not_carried else carried.values, carried.notes
        if written is None:
            missing.append(name)
            notes += why
        else:
            values.update(written)
    return ExportedSettings(values, tuple(missing), tuple(notes))


def dialect_keys(dialect: Dialect, name: str) -> frozenset[str]:
    """Every key by which the setting `name` may stand in the tool's file."""
    spelled = {key for written in dialect.words.get(name, {}).values() for key in written}
    spelled |= {dialect.names[name]} if name in dialect.names else set()
    if name == "warmup_steps" and dialect.ratio is not None:
        spelled |= {"warmup_steps", dialect.ratio}
    return frozenset(spelled | (set(hf.argument_names(name)) if dialect.extends_hf else set()))


def read_settings(dialect: Dialect, values: Mapping[str, Any]) -> ImportedSettings:
    """The settings that a tool's file gives. Raises `FieldError`; what is no setting is left out with a note."""
    plain: dict[str, Any] = dict(values)
    found: dict[str, Any] = {}
    for name in FIELDS:
        for value, written in dialect.words.get(name, {}).items():
            if written and all(key in values and values[key] == wanted for key, wanted in written.items()):
                found[name] = value  # a later entry is the more special one
        for key in {key for written in dialect.words.get(name, {}).values() for key in written}:
            if name in found:
                plain.pop(key, None)
        own = dialect.names.get(name)
        if name not in found and own is not None and own in plain:
            found[name] = plain.pop(own)
    return from_hf({**plain, **found})


def _defines(dialect: Dialect, name: str) -> bool:
    return name in dialect.names or name in dialect.words


def _written_keys(dialect: Dialect, name: str, value: Value) -> WrittenKeys | None:
    if name == "warmup_steps" and dialect.ratio is not None and isinstance(value, float):
        return {dialect.ratio: value} if 0 < value < 1 else {"warmup_steps": int(value)}
    words = dialect.words.get(name, {})
    if value in words:
        return words[value]
    return {dialect.names[name]: value} if name in dialect.names else None
