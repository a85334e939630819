"""Hooks of a trial: its loaders, optimizers, TrainingArguments and Trainer."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from ..hooks.compilation import is_compiling_function
from ..import_hooks import call_before, call_safely
from ..inject.injection import InjectionLog, inject_training_arguments
from .trial_controller import MAX_STEPS_KEPT

if TYPE_CHECKING:
    from ..session import Session
    from .trial_controller import TrialController

TRIAL_ARGUMENTS = {"max_steps": 1_000_000, "save_strategy": "no", "eval_strategy": "no", "evaluation_strategy": "no",
             "load_best_model_at_end": False, "push_to_hub": False, "report_to": "none"}  # fmt: skip
"""Values of TrainingArguments in a trial, which neither ends early nor leaves files."""


def hook_trial_loaders(module: Any, trial: TrialController) -> None:
    """Notify the trial before a loader is iterated."""
    call_before(module.DataLoader, "__iter__", trial.loader_opened)


def hook_trial_optimizers(module: Any, trial: TrialController) -> None:
    """Notify the trial of optimizer steps. torch 1 has no such hooks."""
    if not hasattr(module, "register_optimizer_step_pre_hook"):
        return
    is_compiling = is_compiling_function()

    def begins(_: Any, args: Any, kwargs: Any) -> None:
        if not is_compiling():
            call_safely(trial.optimizer_begins, args, kwargs)

    def ends(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not is_compiling():
            call_safely(trial.optimizer_ends, optimizer)

    module.register_optimizer_step_pre_hook(begins)
    module.register_optimizer_step_post_hook(ends)


def inject_trial_arguments(module: Any, session: Session) -> None:
    """Disable saving, evaluation and reporting in TrainingArguments."""
    inject_training_arguments(module, _SilentInjection(session, TRIAL_ARGUMENTS))


def hook_trial_trainer(module: Any, trial: TrialController) -> None:
    """Notify the trial when a Trainer starts and ends training."""
    original = module.Trainer.train

    @functools.wraps(original)
    def train(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        call_safely(trial.set_trainer, trainer)
        try:
            return original(trainer, *args, **kwargs)
        finally:
            if sys.exc_info()[1] is None:
                call_safely(trial.training_ended)

    module.Trainer.train = train


class _SilentInjection(InjectionLog):
    """Injects without a report: these are not settings of the user. The training's own `max_steps` is kept aside."""

    def set_values(self, arguments: Any, values: dict[str, Any]) -> None:
        arguments.__dict__.setdefault(MAX_STEPS_KEPT, getattr(arguments, "max_steps", None))
        super().set_values(arguments, values)

    def report(self, place: str, values: dict[str, Any], last: bool = False) -> None:
        return None
