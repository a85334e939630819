"""Observes a training from inside its process. Standard library only, Python 3.8 syntax.

Environment variables set by the launcher:
  TUNER_RUN_DIR              run folder; without it the observer does nothing
  TUNER_INJECT               JSON: settings to inject into TrainingArguments, DataLoader and Lightning's Trainer
  TUNER_RESUME               checkpoint to resume from where the script itself asks for none
  TUNER_SAVE_ON_TERM         if set, SIGTERM makes a Trainer save a checkpoint
  TUNER_MEMORY_LIMIT_BYTES   GPU memory limit of this process (on a CPU the launcher sets RLIMIT_DATA)
  TUNER_TRIAL                JSON: protocol of a trial, which is measured and then ended
  TUNER_REPLAY               JSON: step of which the operators are checked for results that are not finite; rows to read
  RANK, WORLD_SIZE           as set by torchrun and accelerate

Nothing is imported early: each hook is installed when the training itself imports the module that it hooks.
"""

from __future__ import annotations

import os


def install() -> None:
    """Install the import hooks. Does nothing without a run folder."""
    run_dir = os.environ.get("TUNER_RUN_DIR")
    if not run_dir:
        return
    from . import bootstrap

    bootstrap.install(os.path.abspath(run_dir))
