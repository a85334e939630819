"""The job as lines of text that a person edits, and back; what cannot be read names its line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import ValidationError

from tuner_tui.settings.apply import default_apply_mode
from tuner_tui.settings.dialects.registry import DIALECTS
from tuner_tui.settings.errors import FieldError
from tuner_tui.settings.job import ApplyMode, BuiltinJob, CommandJob, Job, Launcher

COMMAND, BUILTIN = "command", "built-in"


@dataclass(frozen=True, slots=True)
class JobLine:
    """One line of the form; `choices` where it is one of a few words."""

    name: str
    label: str
    help: str
    choices: tuple[str, ...] = ()


KIND_LINE = JobLine("kind", "what trains", "your own command, or the built-in training", (BUILTIN, COMMAND))
LAUNCHER_LINES = (
    JobLine("launcher", "launcher", "what starts the processes", get_args(Launcher)),
    JobLine("processes", "processes", "one a GPU; needs torchrun or accelerate"),
)
FALLBACK_LINE = JobLine("fallback", "fall back", "out of memory: how often a smaller micro batch may go on by itself")
COMMAND_LINES = (
    JobLine(
        "command", "command", "as in a shell: python train.py; {config}, {output_dir} and {checkpoint} are filled in"
    ),
    JobLine("cwd", "working folder", "empty: where tuner-tui was started"),
    JobLine("env", "environment", "NAME=value words, added to the shell's own"),
    JobLine("interpreter", "interpreter", "the Python whose packages train; empty: the shell's"),
    *LAUNCHER_LINES,
    JobLine("apply", "settings by", "how the settings reach the command", get_args(ApplyMode)),
    JobLine("dialect", "in words of", "whose names hf-args, hydra and yaml write", tuple(DIALECTS)),
    JobLine("aliases", "own names", "setting=key words, such as learning_rate=optimizer.lr"),
    FALLBACK_LINE,
)
BUILTIN_LINES = (
    JobLine("task", "task", "what is learnt", ("classification", "causal-lm")),
    JobLine("model", "model", "a Hub id, a local path, or a shape: tiny, bert-base, gpt2, llama-1b"),
    JobLine("data", "data", "a CSV, JSONL or Parquet file, a Hub dataset, or stdlib"),
    JobLine("text_column", "text column", "empty: found by itself"),
    JobLine("text_pair_column", "second text", "empty: none"),
    JobLine("label_column", "label column", "empty: found by itself"),
    JobLine("max_samples", "most samples", "empty: all of them"),
    JobLine("interpreter", "interpreter", "the Python that trains; empty: the shell's"),
    JobLine("trust_remote_code", "remote code", "whether code of the model's author may run here", ("off", "on")),
    *LAUNCHER_LINES,
    FALLBACK_LINE,
)
APPLY_HELP: Mapping[str, str] = {
    "placeholders": "{learning_rate} and the like in the command are filled in",
    "hf-args": "--learning_rate 1e-05 at its end, in place of what it says",
    "hydra": "optimizer.lr=1e-05 for settings that have an own name below",
    "yaml": "put into the YAML file that the command names, or at {config}",
    "inject": "set inside the process, where it builds TrainingArguments or a DataLoader",
    "none": "the command keeps all its own",
}


def lines_of(kind: str) -> tuple[JobLine, ...]:
    """The lines below the first, for a kind of job."""
    return COMMAND_LINES if kind == COMMAND else BUILTIN_LINES


def texts_of(job: Job) -> dict[str, str]:
    """The job as text, by line."""
    if isinstance(job, BuiltinJob):
        values = {name: _text(value) for name, value in job.model_dump(exclude={"kind"}).items()}
        return {"kind": BUILTIN, **values}
    return {
        "kind": COMMAND,
        "command": shlex.join(job.command),
        "cwd": job.cwd or "",
        "env": _pairs_text(job.env),
        "interpreter": job.interpreter or "",
        "launcher": job.launcher,
        "processes": str(job.processes),
        "apply": job.apply,
        "dialect": job.dialect,
        "aliases": _pairs_text(job.aliases),
        "fallback": str(job.fallback),
    }


def way_told(command: str) -> str | None:
    """How settings can reach the command, by its own words; None where they cannot be read yet."""
    try:
        return default_apply_mode(shlex.split(command))
    except ValueError:
        return None


def job_of(texts: Mapping[str, str]) -> Job:
    """The job that the lines describe; raises `FieldError` that names the line."""
    kind = texts["kind"]
    values = {line.name: texts[line.name].strip() for line in lines_of(kind)}
    given: dict[str, Any] = {name: text for name, text in values.items() if text}
    if kind == BUILTIN:
        return _launched(_validated(BuiltinJob, given | {"trust_remote_code": values["trust_remote_code"] == "on"}))
    given["command"] = _words("command", values["command"])
    for name in ("env", "aliases"):
        given[name] = _pairs(name, values[name])
    return _launched(_validated(CommandJob, given))


def _launched(job: Job) -> Job:
    if job.processes > 1 and job.launcher == "plain":
        raise FieldError("processes", "Several processes need a launcher: torchrun, or accelerate.")
    return job


def _validated(model: type[BuiltinJob] | type[CommandJob], values: Mapping[str, Any]) -> Job:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "command"
        raise FieldError(name, first["msg"].removeprefix("Value error, ")) from error


def _words(name: str, text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise FieldError(name, f"This is no shell line: {str(error).lower()}.") from error
    if name == "command" and not words:
        raise FieldError(name, "What shall run? Such as python train.py.")
    return words


def _pairs(name: str, text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in _words(name, text):
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise FieldError(name, f"{word} is not of the form NAME=value.")
        pairs[key] = value
    return pairs


def _pairs_text(pairs: Mapping[str, str]) -> str:
    return shlex.join(f"{name}={value}" for name, value in pairs.items())


def _text(value: object) -> str:
    if value is None:
        return ""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
