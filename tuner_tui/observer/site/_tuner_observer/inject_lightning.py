"""`inject` into Lightning: its Trainer takes what it has a place for, under its own names, the loaders theirs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .importing import call_safely

if TYPE_CHECKING:
    from .inject import Ledger

AT_FIT = {"gradient_accumulation_steps": "accumulate_grad_batches", "max_grad_norm": "gradient_clip_val"}
"""Set when the model is known: one that steps its optimizers itself (manual optimization) does both by itself."""


def into_trainer(module: Any, ledger: Ledger) -> None:
    """`module` is `….trainer.trainer`; arguments that the script gave are replaced."""
    trainer_class = module.Trainer
    construct, fit = trainer_class.__init__, trainer_class.fit

    @functools.wraps(construct)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        changes = call_safely(_arguments, ledger.settings, kwargs) or {}
        for each in changes.values():
            kwargs.update(each)
        construct(self, *args, **kwargs)
        if changes:
            call_safely(ledger.tell, "Trainer", {name: ledger.settings[name] for name in changes})

    @functools.wraps(fit)
    def wrapped_fit(self: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        call_safely(_set_at_fit, self, model, ledger)
        return fit(self, model, *args, **kwargs)

    trainer_class.__init__ = __init__
    trainer_class.fit = wrapped_fit


def _arguments(settings: dict[str, Any], given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """For each setting that this Trainer takes: the arguments that carry it."""
    found: dict[str, dict[str, Any]] = {}
    if not given.get("plugins"):  # a precision of its own may be among them
        word = "bf16-mixed" if settings.get("bf16") else "16-mixed" if settings.get("fp16") else "32-true"
        found.update({name: {"precision": word} for name in ("bf16", "fp16") if name in settings})
    epochs, steps = settings.get("num_train_epochs"), settings.get("max_steps")
    if epochs is not None and epochs == int(epochs):
        found["num_train_epochs"] = {"max_epochs": int(epochs)}
    if steps is not None:
        # As TrainingArguments has it: steps above 0 decide alone.
        found["max_steps"] = {"max_steps": steps, "max_epochs": -1} if steps > 0 else {"max_steps": -1}
    return found


def _set_at_fit(trainer: Any, model: Any, ledger: Ledger) -> None:
    if not model.automatic_optimization:
        return
    values = {name: value for name, value in ledger.settings.items() if name in AT_FIT}
    for name, value in values.items():
        setattr(trainer, AT_FIT[name], value)
    if values:
        ledger.tell("Trainer.fit", values)
