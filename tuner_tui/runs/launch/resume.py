"""Passes a checkpoint to the command that resumes from it.

`{checkpoint}` in the command is replaced by the path; without a checkpoint that argument is removed, together with the
option before it. YAML files and `hf-args` get `resume_from_checkpoint`, the name that Trainer, TRL, LLaMA-Factory,
axolotl and ms-swift share. In addition, the observer sets it where a script calls `Trainer.train()` without one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml

from tuner_tui.settings.apply import AppliedCommand, dump_config
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job

CHECKPOINT_PLACEHOLDER = "{checkpoint}"
RESUME_KEY = "resume_from_checkpoint"
RESUME_VARIABLE = "TUNER_RESUME"
"""Passes the checkpoint to the observer."""


def with_checkpoint(applied: AppliedCommand, job: Job, checkpoint: Path | None) -> AppliedCommand:
    """The command that resumes from `checkpoint`, or starts at step 0 if it is None."""
    if isinstance(job, CommandJob) and any(CHECKPOINT_PLACEHOLDER in word for word in applied.argv):
        return replace(applied, argv=_fill_placeholder(applied.argv, checkpoint))
    if checkpoint is None:
        return applied
    if applied.config_yaml is not None:
        values = {**yaml.safe_load(applied.config_yaml), RESUME_KEY: str(checkpoint)}
        return replace(applied, config_yaml=dump_config(values))
    if isinstance(job, CommandJob) and job.apply == "hf-args":
        return replace(applied, argv=(*applied.argv, f"--{RESUME_KEY}", str(checkpoint)))
    return applied


def accepts_checkpoint(job: Job) -> bool:
    """Whether the command itself takes a checkpoint; otherwise only the observer can pass it, to scripts that use
    Trainer."""
    if isinstance(job, BuiltinJob):
        return True
    return job.apply in ("yaml", "hf-args") or any(CHECKPOINT_PLACEHOLDER in word for word in job.command)


def _fill_placeholder(argv: tuple[str, ...], checkpoint: Path | None) -> tuple[str, ...]:
    if checkpoint is not None:
        return tuple(word.replace(CHECKPOINT_PLACEHOLDER, str(checkpoint)) for word in argv)
    kept: list[str] = []
    for word in argv:
        if CHECKPOINT_PLACEHOLDER not in word:
            kept.append(word)
        elif word == CHECKPOINT_PLACEHOLDER and kept and kept[-1].startswith("-") and "=" not in kept[-1]:
            kept.pop()
    return tuple(kept)
