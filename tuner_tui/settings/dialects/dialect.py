"""Describes a tool's names and values for the settings as data.

`dialects` reads the descriptions in `tools.yaml`; `dialect_of_command` chooses one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePath
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from tuner_tui.core.files import read_data_file
from tuner_tui.settings.dialects import hf, hooks
from tuner_tui.settings.dialects.script_search import TABLES
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.model import FIELDS, Value, did_you_mean, shorten_text

WrittenKeys = Mapping[str, Any]
Form = Literal["yaml", "json", "arguments", "overrides", "python"]
"""Text that holds the values: a file, `--key value`, Hydra's `key=value`, or keyword arguments of Python calls."""


class Renamed(Struct, frozen=True):
    """What an old key of a tool became in the release `since`; a value that `values` lacks says nothing."""

    key: str
    since: str
    values: Mapping[Any, Any] | None = None


class Dialect(Struct, frozen=True):
    """How one tool spells the settings in its configuration: a table of `tools.yaml`, whose head explains its parts."""

    name: str
    tool: str
    command: str
    commands: Sequence[Mapping[str, Any]] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    programs: Sequence[str] = ()
    values: Mapping[str, Mapping[Value, WrittenKeys]] = field(default_factory=dict)
    warmup_ratio: str | None = None
    read_as: Mapping[str, Mapping[str | int, Value]] = field(default_factory=dict)
    renamed: Mapping[str, Renamed] = field(default_factory=dict)
    older: Mapping[str, str | int] = field(default_factory=dict)
    extends_hf: bool = True
    file_keys: Collection[str] = ()
    nested: bool = False
    whole: Collection[str] = ()
    choose_command: Callable[[Mapping[str, Any], Path], str | None] | None = None
    model_keys: Sequence[str] = ("model_name_or_path",)
    data_keys: Sequence[str] = ("dataset_name", "train_file", "dataset", "data_files")
    environment: Mapping[str, Sequence[str]] = field(default_factory=dict)
    users_sections: Sequence[str] = ()
    only_keys: str = ""
    form: Form = "yaml"
    leaves: Mapping[str, Sequence[str]] = field(default_factory=dict)
    certain_keys: Collection[str] = ()
    of_launcher: bool = False
    of_language_models: bool = False
    calls: Mapping[str, str] = field(default_factory=dict)
    takes_more: Callable[[Mapping[str, Any], str], bool] | Literal[False] | None = None
    also_read: Mapping[str, Sequence[tuple[WrittenKeys, Value]]] = field(default_factory=dict)
    read_more: Callable[[Mapping[str, Any]], Mapping[str, Value]] | None = None
    complete: Callable[[Mapping[str, Any]], WrittenKeys] | None = None
    computed: Mapping[str, str] = field(default_factory=dict)
    required: Mapping[str, Any] = field(default_factory=dict)
    assumed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Value] = field(default_factory=dict)


def dialect_keys(dialect: Dialect, name: str) -> frozenset[str]:
    """Every key that may hold the setting `name` in the tool's file."""
    spelled = {key for _, written in spellings_of(dialect, name) for key in written}
    spelled |= {table[name] for table in (dialect.names, dialect.computed) if name in table}
    spelled |= {old for old, new in dialect.renamed.items() if new.key in spelled}
    if name == "warmup_steps" and dialect.warmup_ratio is not None:
        spelled |= {"warmup_steps", dialect.warmup_ratio}
    return frozenset(spelled | (set(hf.argument_names(name)) if dialect.extends_hf else set()))


@cache
def leaf_pattern(leaf: str) -> re.Pattern[str]:
    """What a key ends with that is one of the names of the alias `leaf`; W&B keeps `lr: {value: 0.1, desc: …}`."""
    return re.compile(rf"(?:^|\.)(?:{leaf.replace('.', chr(92) + '.')})(?:\.value)?$", re.IGNORECASE)


def spellings_of(dialect: Dialect, name: str) -> list[tuple[Value, WrittenKeys]]:
    """The values of a setting with the keys and values that say them, the more specific later."""
    more = [(value, written) for written, value in dialect.also_read.get(name, ())]
    return [*dialect.values.get(name, {}).items(), *more]


HF = "hf"
"""Name of the plain Hugging Face dialect."""
PLAIN: Mapping[Form, str] = {"python": "hf-python", "arguments": "hf-args"}

HOOKS = frozenset({"choose_command", "takes_more", "read_more", "complete"})
"""Parts of a table that name a function of `hooks`."""


@cache
def dialects() -> Mapping[str, Dialect]:
    """The dialects in `tools.yaml`, the plain Hugging Face one first."""
    tables = read_data_file(TABLES)
    names = sorted(tables.keys() - {"shared", "words"}, key=lambda name: (name != HF, name))
    return {name: _parse_table(name, tables[name]) for name in names}


def _parse_table(name: str, table: Mapping[str, Any]) -> Dialect:
    fields = {key: getattr(hooks, value) if key in HOOKS and value else value for key, value in table.items()}
    fields["renamed"] = {old: Renamed(**new) for old, new in table.get("renamed", {}).items()}
    # Aliases are by setting; the tool may have a key of its own for it.
    fields["leaves"] = {table.get("names", {}).get(key, key): leaves for key, leaves in table.get("leaves", {}).items()}
    dialect = Dialect(name=name, **fields)
    if not (dialect.nested and dialect.extends_hf and dialect.form == "yaml"):
        return dialect
    # An argument of TrainingArguments may be in any section.
    spellings = [spelling for setting in FIELDS for spelling in hf.argument_names(setting)]
    leaves = {spelling: [spelling, *dialect.leaves.get(spelling, ())] for spelling in spellings}
    return replace(dialect, leaves={**dialect.leaves, **leaves})


def dialect_by_name(name: str) -> Dialect:
    """The dialect `name`. Raises `SettingsError`, which suggests the closest one."""
    if name in dialects() or name == "hf-yaml":  # as it was called before
        return dialects().get(name, dialects()[HF])
    choices = f"{', '.join(dialects())}{did_you_mean(name, dialects())}"
    raise SettingsError(f"'{shorten_text(name)}' is not a supported format. Choose from {choices}")


def dialect_of_command(command: Sequence[str]) -> Dialect:
    """The dialect of the tool that a command starts, by its program or module, or the plain Hugging Face one."""
    programs = {program: dialect for dialect in dialects().values() for program in dialect.programs}
    for name in (PurePath(word).name for word in command[:4]):
        named = programs.get(name if name.endswith(".py") else name.partition(".")[0])
        if named is not None:
            return named
    return dialects()[HF]
