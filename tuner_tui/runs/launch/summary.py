"""Describes a prepared launch as labelled lines: command, injected settings, what is not applied and why."""

from __future__ import annotations

import shlex
from pathlib import Path

from tuner_tui.runs.launch.command import SIGTERM_CHECKPOINT_VARIABLE, missing_processes
from tuner_tui.runs.launch.prepare import PreparedLaunch
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.training_script import may_use_trainer


def launch_summary(prepared: PreparedLaunch) -> list[tuple[str, str]]:
    """Label and text of each line, secrets hidden. A line that continues the one before has an empty label."""
    applied = prepared.applied
    lines = [("Command", shlex.join(prepared.redacted_argv))]
    if prepared.cwd != Path.cwd():
        lines.append(("Folder", str(prepared.cwd)))
    if prepared.accelerate is not None:
        lines.append(("accelerate", prepared.accelerate.summary))
    if prepared.checkpoint is not None:
        own = prepared.own_resume
        lines.append(("Resumes", str(prepared.checkpoint) if own is None else own.sentence))
    if applied.inject:
        lines.append(("Set inside", ", ".join(f"{name} {value}" for name, value in applied.inject.items())))
    if _saves_on_sigterm(prepared):
        lines.append(
            ("On SIGTERM", "a Trainer saves a checkpoint and stops, unless set otherwise (enable_jit_checkpoint)")
        )
    fallback = prepared.request.job.fallback
    if fallback:
        times = "once" if fallback == 1 else f"at most {fallback} times"
        lines.append(("Fallback", f"restarts after out of memory with a smaller micro batch, {times}"))
    if prepared.warning is not None:
        lines.append(("Warning", prepared.warning))
    missing = missing_processes(prepared.request.job, prepared.env, prepared.accelerate)
    lines += [] if missing is None else [("Warning", missing)]
    lines += [("Warning", f"{sentence}: checkpoints overwrite each other") for sentence in prepared.shared_outputs]
    if applied.not_applied:
        lines.append(("Not applied", ", ".join(applied.not_applied)))
        lines += [("", why) for why in applied.notes]
    lines += [("Note", note) for note in prepared.request.notes]
    return lines


def _saves_on_sigterm(prepared: PreparedLaunch) -> bool:
    """Whether the observer will make a Trainer save: where the command is seen to have one."""
    job = prepared.request.job
    if SIGTERM_CHECKPOINT_VARIABLE not in prepared.added_env or not isinstance(job, CommandJob):
        return False
    return may_use_trainer(job.command, prepared.cwd)
