"""The job of a tool's configuration file: the tool's command on that file, and the model and data the file names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from msgspec import convert, structs

from tuner_tui.settings.apply import default_apply_mode
from tuner_tui.settings.dialects.dialect import (
    HF,
    TEMPLATE,
    Dialect,
    Form,
    dialect_by_name,
    dialect_keys,
    dialect_of_command,
    flatten,
    keys_in_file,
)
from tuner_tui.settings.dialects.hf import RENAMED
from tuner_tui.settings.dialects.hooks import own_script_command
from tuner_tui.settings.dialects.hydra import group_of
from tuner_tui.settings.dialects.python_source import CLASS
from tuner_tui.settings.dialects.script_search import find_script, find_shell_scripts, read_source
from tuner_tui.settings.dialects.shell_script import read_shell
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import MODEL_NAMES, ApplyMode, CommandJob, names_other_task
from tuner_tui.settings.model import FIELDS, shorten_text
from tuner_tui.settings.yaml_reader import ToolFile

APPLY_MODES: Mapping[Form, ApplyMode] = {"python": "inject", "overrides": "placeholders"}
"""How settings reach a file of a form that is not rewritten for each run."""
NO_PROGRAMS = (".ipynb", ".args")
CPU_KEYS = ("use_cpu", "no_cuda", "trainer.accelerator", "fit.trainer.accelerator")
UNKNOWN_SCRIPT = "train.py"
"""Stands for the user's own script in a command where none is found: the launch says that it is not there."""
SHELL_DATA_KEYS = (
    "dataset", "dataset_name", "data_path", "dataset_path", "train_file", "train_data", "train_file_dir",
    "train_data_path", "data_name",
)  # fmt: skip
ENTRY_KEYS = ("path", "id", "name", "dataset_name", "dataset")
"""What an entry of a list of datasets calls its dataset."""
BUILDERS = frozenset({"json", "csv", "parquet", "arrow", "text"})
"""What is in the place of a dataset's name where `data_files` holds the data."""
LONGEST_NAME = 200


def job_of_file(dialect: Dialect, file: ToolFile, path: Path) -> CommandJob | None:
    """The command that trains by the file, with settings put into it; None if only the user knows the script.

    Paths are absolute, so that the job may be saved and started anywhere. Raises `SettingsError` for a file of the tool
    that trains nothing.
    """
    if path.suffix in NO_PROGRAMS:
        return None
    flat = flatten(file.values) if dialect.nested else file.values
    if file.words or dialect.form == "arguments":
        return _job_of_shell(dialect, file, path, flat)
    if dialect.of_launcher and (job := _job_of_launcher(dialect, path)) is not None:
        return job
    chosen = None if dialect.choose_command is None else dialect.choose_command(file.values, path)
    command = chosen or dialect.command
    script = None if dialect.script_marker is None else find_script(path, dialect.script_marker)
    if script is None and dialect.name == HF:
        reading = own_script_command({}, path)
        if reading is None:
            return None  # a file of arguments alone may belong to any command
        command = reading
    file_path = path.absolute()
    group = group_of(path) if dialect.form == "overrides" else None
    if group is not None:
        command = f"python {{script}} {shlex.quote(f'{group.override}={path.stem}')}"
    paths = {"{config}": file_path, "{script}": script or UNKNOWN_SCRIPT, "{folder}": file_path.parent}
    paths |= {"{stem}": Path(path.stem)}
    words = tuple(
        str(paths.get(word, word.replace("{config}", str(file_path)))) for word in shlex.split(command) if word
    )
    apply: ApplyMode = APPLY_MODES.get(dialect.form, "yaml")
    if apply == "yaml" and dialect.name == HF and path.suffix.lower() == ".json":
        apply = "inject"  # the script looks at the suffix: it would not read a YAML file in its place
    if apply == "yaml" and ("{config}" not in command or path.suffix.lower() == ".toml"):
        apply = "inject"  # the script opens the file by a path of its own, or reads what is not written here
    model = _first_text(flat, dialect.model_keys)
    return CommandJob(
        command=words,
        apply=apply,
        dialect=HF if apply == "inject" else dialect.name,
        aliases=_aliases(dialect, flat) if dialect.form == "overrides" else {},
        model=model,
        task=_task(flat, model, words),
        data=_first_text(flat, dialect.data_keys),
        on_cpu=any(flat.get(key) in (True, "cpu") for key in CPU_KEYS),
        env={name: value for key, (name, value) in dialect.environment.items() if flat.get(key)},
    )


def _job_of_launcher(dialect: Dialect, path: Path) -> CommandJob | None:
    """The command of the first shell script near a launcher's file that starts a training with it."""
    for shell in find_shell_scripts(path):
        try:
            file = read_shell(read_source(shell), str(shell))
        except SettingsError:
            continue
        at = [index for index, word in enumerate(file.command) if Path(word).name == path.name]
        scripts = [word for word in file.command if word.endswith(".py")]
        folders = [folder for folder in shell.parents if scripts and (folder / scripts[0]).is_file()]
        if len(at) != 1 or not folders:
            continue
        words = tuple(str(path.absolute()) if index in at else word for index, word in enumerate(file.command))
        job = _job_of_shell(dialect_by_name("hf-args"), replace(file, command=words), shell, file.values)
        return structs.replace(job, apply="yaml", dialect=dialect.name, aliases={}, cwd=str(folders[0]))
    return None


def _job_of_shell(dialect: Dialect, file: ToolFile, path: Path, flat: Mapping[str, Any]) -> CommandJob:
    """The training command of a shell script; where it needs variables of the shell, the script itself."""
    model = _first_text(flat, (*dialect.model_keys, *MODEL_NAMES))
    data = _first_text(flat, (*dialect.data_keys, *SHELL_DATA_KEYS))
    common: dict[str, Any] = {"model": model, "task": _task(flat, model, (str(path), *file.command)), "data": data}
    if not file.command:
        return CommandJob(command=("bash", str(path.absolute())), apply="inject", **common)
    if dialect.form == "overrides":
        job_keys = {"apply": "placeholders", "dialect": dialect.name, "aliases": _aliases(dialect, flat)}
        return convert({**common, **job_keys, "command": file.command, "env": file.environment}, CommandJob)
    tool = dialect_of_command(file.command).name
    spelled = {**{name: key for key, name in RENAMED.items() if key in flat}, **keys_in_file(dialect, flat)}
    aliases = {name: key for name, key in spelled.items() if name in FIELDS} if tool == HF else {}
    mode = default_apply_mode(file.command)
    mode = "hf-args" if mode == "inject" else mode
    return CommandJob(command=file.command, apply=mode, dialect=tool, aliases=aliases, env=file.environment, **common)


def _aliases(dialect: Dialect, flat: Mapping[str, Any]) -> dict[str, str]:
    """The keys of the file for the settings that it has."""
    places = {key: key for key in flat} | keys_in_file(dialect, flat)
    keys = {name: dialect_keys(dialect, name) & places.keys() for name in FIELDS}
    return {name: places[min(indices)] for name, indices in keys.items() if len(indices) == 1}


def _task(
    flat: Mapping[str, Any], model: str | None, command: Sequence[str]
) -> Literal["classification", "causal-lm", "other"] | None:
    """The task of a script's model class, else that of a named model; None without one of text."""
    model_class = str(flat.get(f"from_pretrained.{CLASS}", ""))
    if re.search("(Sequence|Token)Classification", model_class):
        return "classification"
    if re.search("CausalLM|MaskedLM|LanguageModel", model_class):
        return "causal-lm"
    if "For" in model_class:
        return "other"
    return None if model is None or names_other_task(model, command) else "causal-lm"


def _first_text(values: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """The first that is given; in sections, where one key ends so."""
    for key in keys:
        ending = [key] if key in values else [key_path for key_path in values if key_path.endswith(f".{key}")]
        if len(ending) == 1 and (text := _text_of(values[ending[0]])):
            return text
    return None


def _text_of(value: object) -> str | None:
    """A name; the names in a list of entries; the keys of a mapping of name to share."""
    if isinstance(value, str):
        return None if TEMPLATE.search(value) or value in BUILDERS else shorten_text(value, LONGEST_NAME)
    if isinstance(value, Mapping):
        inner = value.get("datasets")
        names = [_text_of(inner)] if isinstance(inner, list) else [str(key) for key in value]
    elif isinstance(value, list):
        names = [_entry_name(entry) for entry in value]
    else:
        return None
    return shorten_text(", ".join(dict.fromkeys(name for name in names if name)), LONGEST_NAME) or None


def _entry_name(entry: object) -> str | None:
    if isinstance(entry, Mapping) and entry.get("path") in BUILDERS:
        entry = entry.get("data_files")
        entry = entry[0] if isinstance(entry, list) and entry else entry
    if isinstance(entry, Mapping):
        entry = next((entry[key] for key in ENTRY_KEYS if isinstance(entry.get(key), str)), None)
    return entry if isinstance(entry, str) and not TEMPLATE.search(entry) else None
