"""The settings in effect in a run: those chosen at launch, completed by what the observer reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner_tui.settings.errors import FieldError
from tuner_tui.settings.fields import check_value
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.origin import Resolved

OBSERVED_FIELDS = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "per_device_eval_batch_size",
    "gradient_checkpointing", "learning_rate", "max_grad_norm", "dataloader_num_workers",
    "dataloader_prefetch_factor", "dataloader_persistent_workers", "dataloader_pin_memory",
)  # fmt: skip
"""Settings of which the observer tells the value in effect, under the same name."""


def effective_settings(
    resolved: Resolved, job: BuiltinJob | CommandJob | None, in_effect: Mapping[str, Any]
) -> Settings:
    """What was chosen, and of another's command what was seen where nobody chose."""
    if not isinstance(job, CommandJob):
        return resolved.settings
    names = [name for name in OBSERVED_FIELDS if name not in resolved.chosen]
    return resolved.settings.changed(
        **{name: in_effect[name] for name in names if _is_valid(name, in_effect.get(name))}
    )


def _is_valid(name: str, value: object) -> bool:
    """Whether the settings have room for the value; a script may have a learning rate of 1e30."""
    if not isinstance(value, int | float):
        return False
    try:
        check_value(name, value)
    except FieldError:
        return False
    return True
