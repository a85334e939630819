"""The job of a tool's configuration file: the tool's command on that file, and the model and data the file names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from tuner_tui.settings.apply import default_apply_mode
from tuner_tui.settings.dialects.dialect import TEMPLATE, Dialect, Form, dialect_keys, flatten, own_keys
from tuner_tui.settings.dialects.hydra_composition import is_experiment
from tuner_tui.settings.dialects.python_source import CLASS
from tuner_tui.settings.dialects.registry import HF, dialect_of_command
from tuner_tui.settings.fields import FIELDS, shorten_text
from tuner_tui.settings.job import ApplyMode, CommandJob
from tuner_tui.settings.yaml_reader import ToolFile

APPLY_MODES: Mapping[Form, ApplyMode] = {"python": "inject", "overrides": "hydra"}
"""How settings reach a file of a form that is not rewritten for each run."""
NO_PROGRAMS = (".ipynb", ".args")
SHELL_MODEL_KEYS = ("model_name_or_path", "model", "base_model", "model_id", "pretrained_model_name_or_path")
FOLDERS_UP, MOST_SCRIPTS, MOST_SOURCE_BYTES = 4, 100, 2**18
"""How far a file's script is searched."""
ENTRY_KEYS = ("path", "id", "name", "dataset_name", "dataset")
"""What an entry of a list of datasets calls its dataset."""
LONGEST_NAME = 200


def job_of_file(dialect: Dialect, file: ToolFile, path: Path) -> CommandJob | None:
    """The command that trains by the file, with settings put into it; None if only the user knows the script.

    Paths are absolute, so that the job may be saved and started anywhere. Raises `SettingsError` for a file of the tool
    that trains nothing.
    """
    if path.suffix in NO_PROGRAMS or (dialect.script_unknown and dialect.form != "arguments"):
        return None
    flat = flatten(file.values) if dialect.nested else file.values
    if file.command or dialect.form == "arguments":
        return _job_of_shell(file, path, flat)
    command = dialect.command if dialect.choose_command is None else dialect.choose_command(file.values, path)
    script = None if dialect.script_marker is None else find_script(path, dialect.script_marker)
    if "{script}" in command and script is None:
        return None
    file_path = path.absolute()
    known = {"{config}": file_path, "{script}": script, "{folder}": file_path.parent, "{stem}": path.stem}
    words = tuple(str(known.get(word, word)) for word in shlex.split(command) if word)
    if dialect.form == "overrides" and is_experiment(path):
        words = (*words[:2], f"{file_path.parent.name}={path.stem}")
    apply: ApplyMode = APPLY_MODES.get(dialect.form, "yaml")
    if apply == "yaml" and dialect is HF and path.suffix.lower() == ".json":
        apply = "inject"  # the script looks at the suffix: it would not read a YAML file in its place
    return CommandJob(
        command=words,
        apply=apply,
        dialect=HF.name if apply == "inject" else dialect.name,
        aliases=_aliases(dialect, flat) if apply == "hydra" else {},
        model=_first_text(flat, dialect.model_keys),
        task=_task(flat),
        data=_first_text(flat, dialect.data_keys),
        env={name: value for key, (name, value) in dialect.environment.items() if flat.get(key)},
    )


def find_script(path: Path, marker: str) -> Path | None:
    """The script near the file whose source has `marker`; None if there is none, or several are as near.

    Of several, the only one with `train` in its name is it: an evaluation reads the same file.
    """
    pattern = re.compile(marker)
    for folder in [*path.absolute().parents][:FOLDERS_UP]:
        near = [one for inner in (folder, folder / "src", folder / "scripts") for one in sorted(inner.glob("*.py"))]
        found = [one for one in near[:MOST_SCRIPTS] if pattern.search(_source(one))]
        named = [one for one in found if "train" in one.stem] if len(found) > 1 else found
        if found:
            return named[0] if len(named) == 1 else None
    return None


def _source(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MOST_SOURCE_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _job_of_shell(file: ToolFile, path: Path, flat: Mapping[str, Any]) -> CommandJob:
    """The training command of a shell script; where it needs variables of the shell, the script itself."""
    model = _first_text(flat, SHELL_MODEL_KEYS)
    data = _first_text(flat, ("dataset", "dataset_name", "data_path", "train_file"))
    common: dict[str, Any] = {"model": model, "task": "causal-lm" if model else None, "data": data}
    if not file.command:
        return CommandJob(command=("bash", str(path.absolute())), apply="inject", **common)
    tool = dialect_of_command(file.command).name
    mode = default_apply_mode(file.command)
    mode = "hf-args" if mode == "inject" else mode
    return CommandJob(command=file.command, apply=mode, dialect=tool, env=file.environment, **common)


def _aliases(dialect: Dialect, flat: Mapping[str, Any]) -> dict[str, str]:
    """The keys of the file for the settings that it has."""
    places = {key: key for key in flat} | own_keys(dialect, flat)
    keys = {name: dialect_keys(dialect, name) & places.keys() for name in FIELDS}
    return {name: places[min(found)] for name, found in keys.items() if len(found) == 1}


def _task(flat: Mapping[str, Any]) -> Literal["classification", "causal-lm"]:
    return "classification" if "Classification" in str(flat.get(f"from_pretrained.{CLASS}")) else "causal-lm"


def _first_text(values: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    found = (_text_of(values.get(key)) for key in keys)
    return next((text for text in found if text), None)


def _text_of(value: object) -> str | None:
    """A name; the names in a list of entries; the keys of a mapping of name to share."""
    if isinstance(value, str):
        return None if TEMPLATE.search(value) else shorten_text(value, LONGEST_NAME)
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
