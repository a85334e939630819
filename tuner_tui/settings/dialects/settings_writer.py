"""Writes settings as a tool spells them in its file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.dialect import Dialect, WrittenKeys
from tuner_tui.settings.dialects.hf import ExportedSettings
from tuner_tui.settings.dialects.key_places import keys_in_file
from tuner_tui.settings.model import FIELDS, Settings, Value


def write_settings(
    dialect: Dialect,
    settings: Settings,
    targets: Collection[str] | None,
    only: Collection[str],
    file_values: Mapping[str, Any] | None = None,
) -> ExportedSettings:
    """The settings `only` as the tool spells them, to be put into a file with the values `file_values`.

    `targets` are the fields of the installed `TrainingArguments`.
    """
    values: dict[str, Any] = {}
    missing: list[str] = []
    notes: list[str] = []
    keys_of: dict[str, Collection[str]] = {}
    for name in (field_name for field_name in FIELDS if field_name in only):
        written = _written_keys(dialect, name, getattr(settings, name), file_values or {})
        why: tuple[str, ...] = (_no_place(dialect, name, settings),)
        if written is None and dialect.extends_hf and not {name} & {*dialect.names, *dialect.values}:
            given = {*(file_values or {}), *keys_in_file(dialect, file_values or {})}
            extra = [name] if given.intersection(hf.argument_names(name)) else []  # the script has it, if no release
            carried = hf.to_hf(settings, targets, only=[name], extra=extra)
            written, why = None if carried.unsupported else carried.values, carried.notes
        if written is None:
            missing.append(name)
            notes += why
        else:
            values.update(written)
            keys_of[name] = written.keys()
    # Keys that depend on several settings are known only now. A setting whose every key they removed has no place in
    # the file, unless it is what was computed (`computed`), such as the global batch instead of the accumulation.
    if dialect.complete is not None:
        complete = dialect.complete({**(file_values or {}), **values})
        values |= complete
        gone = {key for key, value in complete.items() if value is None and key not in (file_values or {})}
        dropped = [name for name, keys in keys_of.items() if keys and gone.issuperset(keys)]
        dropped = [name for name in dropped if dialect.computed.get(name) not in complete]
        for key in (key for name in dropped for key in keys_of[name]):
            values.pop(key, None)
        missing += dropped
        notes += [_no_place(dialect, name, settings) for name in dropped]
    return ExportedSettings(values, tuple(missing), tuple(notes))


def _no_place(dialect: Dialect, name: str, settings: Settings) -> str:
    owner = "the configuration" if dialect.form == "overrides" else dialect.tool  # Hydra itself has none
    return f"no key of {owner} is known for {name} {getattr(settings, name)}"


def _written_keys(dialect: Dialect, name: str, value: Value, file_values: Mapping[str, Any]) -> WrittenKeys | None:
    """How the tool spells a value; where `file_values` have other keys for the setting, by those."""
    usual = {key for written in dialect.values.get(name, {}).values() for key in written}
    for written, value_read in dialect.also_read.get(name, ()):
        if value_read == value and written.keys() <= file_values.keys() - usual:
            return written
    if name == "warmup_steps" and dialect.warmup_ratio is not None and isinstance(value, float):
        return {dialect.warmup_ratio: value} if 0 < value < 1 else {"warmup_steps": int(value)}
    if name in dialect.whole and isinstance(value, float):
        return {dialect.names[name]: int(value)} if value.is_integer() else None
    special = dialect.values.get(name, {})
    if value in special:
        places = keys_in_file(dialect, file_values) if dialect.older else {}
        given = {str(file_values.get(places.get(key, key))) for key in special[value]}
        older = {} if not file_values or given & dialect.older.keys() else dialect.older
        return {key: older.get(word, word) if isinstance(word, str) else word for key, word in special[value].items()}
    return {dialect.names[name]: value} if name in dialect.names else None
