"""How many optimizer steps the whole training would take of which a trial takes the first ones."""

from __future__ import annotations

import math
from typing import Any

MAX_STEPS_KEPT = "_tuner_max_steps"
"""Attribute of TrainingArguments that keeps the training's own `max_steps`, which a trial replaces."""


def trainer_steps(trainer: Any) -> int | None:
    """Steps that a Hugging Face Trainer would take without the trial; None if its data has no length."""
    arguments = trainer.args
    max_steps = getattr(arguments, MAX_STEPS_KEPT, None)
    if max_steps is not None and max_steps > 0:
        return int(max_steps)
    loader: Any = getattr(trainer.callback_handler, "train_dataloader", None)
    try:
        batches = len(loader)
    except (TypeError, NotImplementedError):
        return None
    steps = max(1, math.ceil(batches / arguments.gradient_accumulation_steps))
    planned: int = math.ceil(arguments.num_train_epochs * steps)
    return planned
