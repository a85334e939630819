"""The observer: watches a training from inside its process. Standard library only; Python 3.9 syntax.

Contract with the launcher, by environment:
  TUNER_RUN_DIR              the run folder; without it the observer does nothing
  TUNER_INJECT               JSON: settings to put into TrainingArguments and DataLoader; absent means none
  TUNER_RESUME               the checkpoint to hand to a Trainer whose script asks for none; absent means none
  TUNER_SAVE_ON_TERM         a Trainer may take SIGTERM as a request for a checkpoint; absent means as it stands
  TUNER_MEMORY_LIMIT_BYTES   cap of this process on a GPU (on a CPU the launcher uses RLIMIT_DATA)
  TUNER_TRIAL                JSON: the terms of a trial, which is measured and ended; absent means that this is none
  RANK, WORLD_SIZE           as torchrun and accelerate set them

Nothing is imported early: each part waits for the module that it watches to be imported by the training itself.
"""

from __future__ import annotations

import os


def install() -> None:
    """Wait for the modules of interest to be imported; nothing without a run folder."""
    run_dir = os.environ.get("TUNER_RUN_DIR")
    if not run_dir:
        return
    from . import bootstrap

    bootstrap.install(os.path.abspath(run_dir))
