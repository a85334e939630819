"""Formats a job as editable lines of text, and parses them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import ValidationError

from tuner_tui.settings.apply import default_apply_mode
from tuner_tui.settings.argv import unknown_placeholder
from tuner_tui.settings.dialects.dialect import dialects
from tuner_tui.settings.dialects.hf import to_hf
from tuner_tui.settings.errors import FieldError
from tuner_tui.settings.job import ApplyMode, BuiltinJob, CommandJob, Job, Launcher
from tuner_tui.settings.model import FIELDS, Settings

COMMAND, BUILTIN = "command", "built-in"
LAUNCH_PLACEHOLDERS = ("config", "output_dir", "checkpoint")
"""Placeholders that the launch fills in itself."""
TASKS = ("classification", "causal-lm")
UNKNOWN_TASK = "unknown"


@dataclass(frozen=True, slots=True)
class JobField:
    """A line of the form; `choices` holds the values it can have, if it is not free text."""

    name: str
    label: str
    help: str
    choices: tuple[str, ...] = ()


KIND_FIELD = JobField("kind", "what trains", "your own command, or the built-in training", (BUILTIN, COMMAND))
LAUNCHER_FIELDS = (
    JobField("launcher", "launcher", "what starts the processes", get_args(Launcher)),
    JobField("processes", "processes", "one per GPU; needs torchrun or accelerate"),
)
FALLBACK_FIELD = JobField(
    "fallback", "OOM retries", "how often to restart with a smaller micro batch after out of memory"
)
COMMAND_FIELDS = (
    JobField(
        "command", "command", "as in a shell: python train.py; {config}, {output_dir} and {checkpoint} are filled in"
    ),
    JobField("cwd", "working folder", "empty: where tuner-tui was started"),
    JobField("env", "environment", "NAME=value pairs, added to the shell's environment"),
    JobField("interpreter", "interpreter", "Python of the training environment; empty: the shell's"),
    *LAUNCHER_FIELDS,
    JobField("apply", "pass settings via", "how the settings reach the command", get_args(ApplyMode)),
    JobField("dialect", "dialect", "naming scheme of hf-args, hydra and yaml", tuple(dialects())),
    JobField("aliases", "aliases", "setting=key pairs, such as learning_rate=optimizer.lr"),
    JobField("model", "model", "model of the command, for estimates: Hub id or local path; empty: unknown"),
    JobField("task", "task", "task of the command, for estimates", (UNKNOWN_TASK, *TASKS)),
    JobField("data", "data", "data of the command, for estimates; empty: unknown"),
    JobField("on_cpu", "on the CPU", "the command's own configuration keeps it off the GPUs", ("off", "on")),
    FALLBACK_FIELD,
)
BUILTIN_FIELDS = (
    JobField("task", "task", "what to learn", TASKS),
    JobField("model", "model", "a Hub id, a local path, or a shape: tiny, bert-base, gpt2, llama-1b"),
    JobField("data", "data", "a CSV, JSONL or Parquet file, a Hub dataset, or stdlib"),
    JobField("text_column", "text column", "empty: detected"),
    JobField("text_pair_column", "second text", "empty: none"),
    JobField("label_column", "label column", "empty: detected"),
    JobField("max_samples", "most samples", "empty: all of them"),
    JobField("interpreter", "interpreter", "Python of the training environment; empty: the shell's"),
    JobField("trust_remote_code", "remote code", "run code that comes with the model", ("off", "on")),
    *LAUNCHER_FIELDS,
    FALLBACK_FIELD,
)
APPLY_HELP: Mapping[str, str] = {
    "placeholders": "{learning_rate} and other names in braces are replaced in the command",
    "hf-args": "appended as --learning_rate 1e-05, replacing the command's own",
    "hydra": "appended as optimizer.lr=1e-05, for settings with an alias below",
    "yaml": "written to the YAML file the command names, or to {config}",
    "inject": "set inside the process when it builds TrainingArguments or a DataLoader",
    "none": "not passed; the command runs unchanged",
}


def job_fields(kind: str) -> tuple[JobField, ...]:
    """Return the lines for a kind of job, without the first one."""
    return COMMAND_FIELDS if kind == COMMAND else BUILTIN_FIELDS


def format_job(job: Job) -> dict[str, str]:
    """Return the text of each line."""
    if isinstance(job, BuiltinJob):
        values = {name: _text(value) for name, value in job.model_dump(exclude={"kind"}).items()}
        return {"kind": BUILTIN, **values}
    return {
        "kind": COMMAND,
        "command": shlex.join(job.command),
        "cwd": job.cwd or "",
        "env": _format_pairs(job.env),
        "interpreter": job.interpreter or "",
        "launcher": job.launcher,
        "processes": str(job.processes),
        "apply": job.apply,
        "dialect": job.dialect,
        "aliases": _format_pairs(job.aliases),
        "model": job.model or "",
        "task": job.task or UNKNOWN_TASK,
        "data": job.data or "",
        "on_cpu": "on" if job.on_cpu else "off",
        "fallback": str(job.fallback),
    }


def guess_apply_mode(command: str) -> str | None:
    """Return how settings can reach the command, or None while it is not a valid shell line."""
    try:
        return default_apply_mode(shlex.split(command))
    except ValueError:
        return None


def parse_job(texts: Mapping[str, str]) -> Job:
    """Parse the lines. Raises `FieldError` with the name of the invalid line."""
    kind = texts["kind"]
    values = {line.name: texts[line.name].strip() for line in job_fields(kind)}
    given: dict[str, Any] = {name: text for name, text in values.items() if text}
    if kind == BUILTIN:
        return _checked_launcher(
            _validated(BuiltinJob, given | {"trust_remote_code": values["trust_remote_code"] == "on"})
        )
    given["command"] = _split_shell("command", values["command"])
    wrong = unknown_placeholder(given["command"], {*FIELDS, *to_hf(Settings()).values, *LAUNCH_PLACEHOLDERS})
    if wrong is not None:
        raise FieldError("command", wrong)
    given["on_cpu"] = values["on_cpu"] == "on"
    if given["task"] == UNKNOWN_TASK:
        del given["task"]
    for name in ("env", "aliases"):
        given[name] = _parse_pairs(name, values[name])
    return _checked_launcher(_validated(CommandJob, given))


def _checked_launcher(job: Job) -> Job:
    if job.processes > 1 and job.launcher == "plain":
        raise FieldError("processes", "Several processes need a launcher: torchrun or accelerate.")
    return job


def _validated(model: type[BuiltinJob] | type[CommandJob], values: Mapping[str, Any]) -> Job:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "command"
        raise FieldError(name, first["msg"].removeprefix("Value error, ")) from error


def _split_shell(name: str, text: str) -> tuple[str, ...]:
    try:
        arguments = tuple(shlex.split(text))
    except ValueError as error:
        raise FieldError(name, f"This is not a valid shell line: {str(error).lower()}.") from error
    if name == "command" and not arguments:
        raise FieldError(name, "Enter a command, such as python train.py.")
    return arguments


def _parse_pairs(name: str, text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in _split_shell(name, text):
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise FieldError(name, f"{word} must have the form NAME=value.")
        pairs[key] = value
    return pairs


def _format_pairs(pairs: Mapping[str, str]) -> str:
    return shlex.join(f"{name}={value}" for name, value in pairs.items())


def _text(value: object) -> str:
    if value is None:
        return ""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
