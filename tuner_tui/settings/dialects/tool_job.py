"""The job of a tool's configuration file: the tool's command on that file, and the model and data the file names."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner_tui.settings.dialects.dialect import Dialect, flatten
from tuner_tui.settings.fields import shorten_text
from tuner_tui.settings.job import CommandJob

ENTRY_KEYS = ("path", "id", "name", "dataset_name", "dataset")
"""What an entry of a list of datasets calls its dataset."""
LONGEST_NAME = 200


def job_of_file(dialect: Dialect, values: Mapping[str, Any], path: Path) -> CommandJob | None:
    """The command that trains by the file, with settings merged into it; None if only the user knows the script.

    The path is absolute, so that the job may be saved and started anywhere. Raises `SettingsError` for a file of the
    tool that trains nothing.
    """
    command = dialect.command if dialect.choose_command is None else dialect.choose_command(values, path)
    if command is None or dialect.script_unknown:
        return None
    flat = flatten(values) if dialect.nested else values
    file = str(path.absolute())
    return CommandJob(
        command=tuple(file if word == "{config}" else word for word in shlex.split(command) if word),
        apply="yaml",
        dialect=dialect.name,
        model=_first_text(flat, dialect.model_keys),
        task="causal-lm",
        data=_first_text(flat, dialect.data_keys),
        env={name: value for key, (name, value) in dialect.environment.items() if flat.get(key)},
    )


def _first_text(values: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    found = (_text_of(values.get(key)) for key in keys)
    return next((text for text in found if text), None)


def _text_of(value: object) -> str | None:
    """A name; the names in a list of entries; the keys of a mapping of name to share."""
    if isinstance(value, str):
        return shorten_text(value, LONGEST_NAME)
    if isinstance(value, Mapping):
        inner = value.get("datasets")
        names = [_text_of(inner)] if isinstance(inner, list) else [str(key) for key in value]
    elif isinstance(value, list):
        names = [_entry_name(entry) for entry in value]
    else:
        return None
    return shorten_text(", ".join(dict.fromkeys(name for name in names if name)), LONGEST_NAME) or None


def _entry_name(entry: object) -> str | None:
    if not isinstance(entry, Mapping):
        return entry if isinstance(entry, str) else None
    return next((entry[key] for key in ENTRY_KEYS if isinstance(entry.get(key), str)), None)
