"""What trains, from the words of `tuner-tui run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from tuner_tui.runs.store.record import RunRecord
from tuner_tui.settings.apply import default_apply_mode
from tuner_tui.settings.dialects.registry import dialect_of_command
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.fields import closest_match
from tuner_tui.settings.job import ApplyMode, BuiltinJob, CommandJob, Job, Launcher
from tuner_tui.settings.presets.preset import Preset

Word = TypeVar("Word", bound=str)


@dataclass(frozen=True, slots=True)
class JobWords:
    """As typed: the command and what stands of it in front of `--`; None and empty where nothing was said."""

    command: tuple[str, ...] = ()
    apply: str | None = None
    launcher: str | None = None
    processes: int | None = None


NOTHING_SAID = JobWords()


def job_for(words: JobWords, preset: Preset | None, record: RunRecord | None = None) -> Job:
    """The job: the command given, with the preset's way of applying settings; else the preset's, else the parent's.

    A command that names no way takes settings by what is in it, see `default_apply_mode`. Raises `SettingsError`.
    """
    known = preset.job if preset is not None and preset.job is not None else None if record is None else record.job
    changes = _changes(words)
    if words.command and not isinstance(known, CommandJob):
        tool = dialect_of_command(words.command).name
        guessed = {"command": words.command, "apply": default_apply_mode(words.command), "dialect": tool}
        return _checked(CommandJob.model_validate(guessed | changes))
    if isinstance(known, CommandJob):
        return _checked(known.model_copy(update=changes | ({"command": words.command} if words.command else {})))
    if known is None and preset is None:
        raise SettingsError("What shall be trained? Give a preset (--preset demo) or a command (-- python train.py).")
    if "apply" in changes:
        raise SettingsError("--apply is for a command; the built-in job takes all settings by itself.")
    return _checked((BuiltinJob() if known is None else known).model_copy(update=changes))


def _changes(words: JobWords) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if words.apply is not None:
        changes["apply"] = _one_of("--apply", words.apply, get_args(ApplyMode))
    if words.launcher is not None:
        changes["launcher"] = _one_of("--launcher", words.launcher, get_args(Launcher))
    if words.processes is not None and words.processes < 1:
        raise SettingsError(f"--processes {words.processes}: at least one process trains.")
    if words.processes is not None:
        changes["processes"] = words.processes
    return changes


def _checked(job: Job) -> Job:
    if job.processes > 1 and job.launcher == "plain":
        raise SettingsError("Several processes need a launcher: --launcher torchrun, or accelerate.")
    return job


def _one_of(flag: str, text: str, words: Sequence[Word]) -> Word:
    for word in words:
        if word == text:
            return word
    near = closest_match(text, words)
    raise SettingsError(f"{flag} {text!r} is none of {', '.join(words)}" + (f"; did you mean {near}?" if near else "."))
