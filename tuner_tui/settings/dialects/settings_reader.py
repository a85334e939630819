"""Reads the settings in a tool's file by the description of the tool's dialect."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping
from typing import Any

from tuner_tui.settings.dialects import hf, hooks
from tuner_tui.settings.dialects.dialect import Dialect, WrittenKeys, dialect_keys, spellings_of
from tuner_tui.settings.dialects.hf import ImportedSettings, from_hf, setting_of_argument
from tuner_tui.settings.dialects.key_places import keys_in_file, why_left_open, without_disabled, without_other_meanings
from tuner_tui.settings.dialects.nested_values import flatten, without_alternatives
from tuner_tui.settings.dialects.script_search import words_of
from tuner_tui.settings.model import FIELDS, Value, shorten_text


def read_settings(dialect: Dialect, values: Mapping[str, Any]) -> ImportedSettings:
    """The settings in a tool's file. Raises `FieldError`; keys that are not settings are ignored with a note.

    So are values that the file leaves open: `auto`, where the setting has no such choice, and template variables.
    """
    notes: list[str] = []
    flat: Mapping[str, Any] = _flat_values(dialect, values)
    switched: Mapping[str, Value] = {}
    if dialect.read_more is hooks.read_scripts_own:
        flat, switched = _apply_switches(flat)
    places, foreign = _find_places(dialect, flat, notes)
    flat = {**flat, **{key: flat[path] for key, path in places.items()}}
    values = _current_keys(dialect, {key: flat[key] for key in flat if key not in set(places.values())}, notes)
    if why_left_open("bf16", values.get("bf16")) is not None:  # it decides about fp16 as well
        values = {key: value for key, value in values.items() if key != "fp16"}
    elif why_left_open("fp16", values.get("fp16")) is not None and values.get("bf16") is False:
        values = {key: value for key, value in values.items() if key != "bf16"}
    # From the least to the most specific: what only a function of the tool can read, values that several keys say
    # together, words of the tool, plain keys. The rest is read by the names of TrainingArguments.
    read = {**dialect.read_more(values), **switched} if dialect.read_more is not None else {}
    plain = dict(values)
    if "warmup_steps" in read:
        plain = {key: value for key, value in plain.items() if not re.fullmatch(words_of("warmup"), key)}
    _read_spellings(dialect, values, plain, read)
    left_open = _take_left_open(dialect, plain, notes)
    for key in (key for key in dialect.read_as if key in plain):
        word, plain[key] = plain[key], _word_of(dialect, key, plain[key])
        if plain[key] is not word:
            notes.append(f"{places.get(key, key)} {word} is read as {'on' if plain[key] is True else plain[key]}")
    for name, key in dialect.names.items():
        if name in FIELDS and name not in read and key in plain:
            read[name] = plain.pop(key)
    imported = _read_arguments(dialect, values, plain, read, notes)
    chosen_by_tool = tuple(
        name for name in FIELDS if name not in imported.settings and dialect_keys(dialect, name) & left_open.keys()
    )
    ignored = (*left_open, *imported.ignored)
    return ImportedSettings(imported.settings, ignored, tuple(notes), imported.unknown, chosen_by_tool, foreign)


def _flat_values(dialect: Dialect, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values by dotted keys, each with one meaning."""
    flat = flatten(without_alternatives(values) if dialect.leaves else values) if dialect.nested else values
    single = {key for key, value in flat.items() if isinstance(value, list) and [*map(type, value)] in ([int], [float])}
    flat = {key: value[0] if key in single else value for key, value in flat.items()}  # fairseq's `lr: [0.0005]`
    for key, value in [*flat.items()] if dialect.nested else ():  # kohya's `optimizer_args = ["weight_decay=0.1"]`
        words = value if isinstance(value, list) and all(isinstance(word, str) for word in value) else []
        flat |= {f"{key}.{name}": text for name, equals, text in (word.partition("=") for word in words) if equals}
    of_tool = {*dialect.names.values()} if dialect.programs else set()  # with one meaning, whatever stands next to it
    return without_other_meanings(flat) | {key: value for key, value in flat.items() if key in of_tool}


def _find_places(
    dialect: Dialect, flat: Mapping[str, Any], notes: list[str]
) -> tuple[Mapping[str, str], dict[str, str]]:
    """The dialect's keys with those of the file for them; and settings whose value is of a library without a name."""
    places = keys_in_file(dialect, flat, agreeing=True)
    places = {key: path for key, path in places.items() if places.get(hf.NEWER.get(key, "")) != path}
    names = {key: name for name, key in dialect.names.items()}
    read_as = {path: names.get(key, key) for key, path in places.items() if names.get(key, key) in FIELDS}
    others = [f"{shorten_text(path)} as {name}" for path, name in read_as.items() if path.rpartition(".")[2] != name]
    if others:
        notes.append(f"read as settings: {', '.join(others)}")
    foreign: dict[str, str] = {}
    for path, name in read_as.items():
        if hf.is_other_library(name, hf.library_word(name, flat[path])):
            foreign[name] = value = shorten_text(str(flat[path]))
            notes.append(f"{name} is {value} by {path}, which Transformers has no name for; it stays as it is")
            places = {key: path_of_key for key, path_of_key in places.items() if path_of_key != path}
    return places, foreign


def _read_spellings(
    dialect: Dialect, values: Mapping[str, Any], plain: dict[str, Any], read: dict[str, Value | None]
) -> None:
    """Read the settings that values of several keys say together, and take these keys out of `plain`."""
    for name in FIELDS:
        spellings = spellings_of(dialect, name)
        key_of_tool = dialect.names.get(name, name)
        word = _word_of(dialect, key_of_tool, values.get(key_of_tool))
        is_plain = name not in dialect.values and word in FIELDS[name].choices
        for value, written in () if is_plain else spellings:
            if _says(values, written, dialect.assumed):
                read[name] = value  # a later entry is more specific: DoRA is LoRA with one more key
        for key in (key for _, written in spellings for key in written if name in read):
            plain.pop(key, None)


def _take_left_open(dialect: Dialect, plain: dict[str, Any], notes: list[str]) -> dict[str, str]:
    """Take what the file leaves open out of `plain`. Returns the reason for each key."""
    left_open = {key: why for key, value in plain.items() if (why := why_left_open(key, value)) is not None}
    settings_keys = {key for name in FIELDS for key in dialect_keys(dialect, name)} if left_open else set()
    for key, why in left_open.items():
        value = shorten_text(str(plain.pop(key)))
        notes += [f"{shorten_text(key)} {value} ignored: {why}"] if key in settings_keys else []
    return left_open


def _read_arguments(
    dialect: Dialect,
    values: Mapping[str, Any],
    plain: dict[str, Any],
    read: Mapping[str, Value | None],
    notes: list[str],
) -> ImportedSettings:
    """Read what is left in `plain` by the names of TrainingArguments."""
    # A near miss of an argument is one only among arguments.
    arguments = sum(setting_of_argument(key) in FIELDS or key in hf.IGNORED_ARGUMENTS for key in plain)
    of_arguments = arguments > max(1, MOSTLY * len(plain))
    strict = dialect.extends_hf and not dialect.names and dialect.form == "yaml" and of_arguments
    if "dtype" in plain and dialect.extends_hf and not dialect.values and not of_arguments:
        notes.append(f"dtype {plain.pop('dtype')} ignored: of the weights, or the precision; the script knows which")
    imported = from_hf({**plain, **read}, strict=strict)
    # A key that the tool has by that name is no old spelling, as it would be for transformers.
    keys_of_tool = {key for name in FIELDS for _, written in spellings_of(dialect, name) for key in written}
    spelled = values.keys() & {*keys_of_tool, dialect.warmup_ratio}
    old = tuple(f"{key} is read as " for key in spelled)
    end = "\n" if dialect.extends_hf else ": "  # what Transformers did with a key is of no tool that has its own
    texts = (note.partition(end)[0] if " is read as " in note else note for note in imported.notes)
    notes += (note for note in texts if not note.startswith(old))
    return imported


def _apply_switches(flat: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Value]]:
    """The values without those that a switch of the file turns off, and the settings that its switches say."""
    settings: dict[str, Value] = {}
    off = flat.keys() - without_disabled(flat).keys()
    variants = {key for key in flat for other in flat if key.endswith(f".{other}")}
    for key, value in flat.items():
        word, name = str(value).lower(), key.rpartition(".")[2]
        if key in variants or word not in ("true", "false", "none"):  # a variant is of a switch at the top, too
            continue
        for row in words_of("switches"):
            last_two = ".".join(key.split(".")[-2:])
            if not (re.fullmatch(row["keys"], name) or re.fullmatch(row["keys"], last_two)):
                continue
            settings |= row["on" if word == "true" else "off"]
            off |= {key} - {*hf.READ_SPECIALLY}
            if word != "true":
                off |= {other for other in flat if re.search(row["covers"], other)} - {key}
    return {key: value for key, value in flat.items() if key not in off}, settings


def _current_keys(dialect: Dialect, values: Mapping[str, Any], notes: list[str]) -> Mapping[str, Any]:
    """The values under the keys of the release that the dialect describes."""
    current = dict(values)
    for old, new in dialect.renamed.items():
        value = values.get(old)
        if value is None or (old != new.key and values.get(new.key) is not None):
            continue
        value = _typed(value, new.values or ())
        is_current = new.values is None or (isinstance(value, Hashable) and value in new.values)
        if not is_current and old == new.key:
            continue
        del current[old]
        if is_current:
            current[new.key] = value if new.values is None else new.values[value]
            notes.append(f"{old} {shorten_text(str(value))} is read as {new.key} {current[new.key]}: {new.since}")
    return current


def _word_of(dialect: Dialect, key: str, word: Any) -> Any:
    """The value that is closest to a word of the tool."""
    words = dialect.read_as.get(key, {})
    return words[word] if isinstance(word, str | int) and word in words else word


def _says(values: Mapping[str, Any], written: WrittenKeys, assumed: Mapping[str, Any]) -> bool:
    """Whether the file has the written values; a key that it lacks is as `assumed`, a switch off, if it has another."""
    return any(key in values for key in written) and all(
        _typed(values.get(key, assumed.get(key, False)), (wanted,)) == wanted for key, wanted in written.items()
    )


def _typed(value: Any, choices: Collection[Any]) -> Any:
    """`value`, which an option of a command line gives as text, as the one of `choices` that is written so."""
    if not isinstance(value, str) or value in choices:
        return value
    spelled = {str(word).lower(): word for word in choices if isinstance(word, bool | int)}
    return spelled.get(value.lower(), value)


MOSTLY = 0.6
"""The share of keys of TrainingArguments in a file of arguments: only there is another key a misspelt one."""
