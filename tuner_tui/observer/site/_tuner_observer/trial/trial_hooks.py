"""Hooks of a trial: its loaders, optimizers, TrainingArguments and Trainer."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from ..hooks.optimizer_steps import is_compiling_function
from ..import_hooks import call_safely
from ..inject.injection import InjectionLog, inject_training_arguments

if TYPE_CHECKING:
    from ..session import Session
    from .trial_controller import TrialController

TRIAL_ARGUMENTS = {"max_steps": 1_000_000, "save_strategy": "no", "eval_strategy": "no", "evaluation_strategy": "no",
             "load_best_model_at_end": False, "push_to_hub": False, "report_to": "none"}  # fmt: skip
"""What a trial's TrainingArguments say: it neither ends early nor leaves anything behind."""


def hook_trial_loaders(module: Any, trial: TrialController) -> None:
    """Tell of a loader before it is read."""
    original = module.DataLoader.__iter__

    @functools.wraps(original)
    def __iter__(loader: Any) -> Any:
        call_safely(trial.reads, loader)
        return original(loader)

    module.DataLoader.__iter__ = __iter__


def hook_trial_optimizers(module: Any, trial: TrialController) -> None:
    """Tell of the optimizer's part of a step. torch 1 has no such hooks."""
    if not hasattr(module, "register_optimizer_step_pre_hook"):
        return
    is_compiling = is_compiling_function()

    def begins(_: Any, args: Any, kwargs: Any) -> None:
        if not is_compiling():
            call_safely(trial.optimizer_begins, args, kwargs)

    def ends(*_: Any) -> None:
        if not is_compiling():
            call_safely(trial.optimizer_ends)

    module.register_optimizer_step_pre_hook(begins)
    module.register_optimizer_step_post_hook(ends)


def inject_trial_arguments(module: Any, session: Session) -> None:
    """Have TrainingArguments neither save, evaluate nor report."""
    inject_training_arguments(module, _SilentInjection(session, TRIAL_ARGUMENTS))


def hook_trial_trainer(module: Any, trial: TrialController) -> None:
    """Tell of a Trainer, and end the trial where its training ends."""
    original = module.Trainer.train

    @functools.wraps(original)
    def train(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        call_safely(trial.trains, trainer)
        try:
            return original(trainer, *args, **kwargs)
        finally:
            if sys.exc_info()[1] is None:
                call_safely(trial.ended)

    module.Trainer.train = train


class _SilentInjection(InjectionLog):
    """Sets what a trial sets, and tells nobody: it is no setting that was asked for."""

    def tell(self, place: str, values: dict[str, Any], last: bool = False) -> None:
        return None
