"""Whether the loss of a Transformers Trainer is that of the whole step, or grows with the batches added up to one.

A model whose forward takes `**kwargs` is told how many items the step has, and the Trainer leaves the division to it.
Classifiers that compute their loss with a `loss_fct` of their own ignore that (BERT, RoBERTa, DistilBERT, GPT-2 and
most others in 5.23): loss and gradient are then as many times too large as batches are accumulated.
"""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import Any

DEEPEST = 12
"""Frames looked at: a Trainer calls its callbacks a few frames below its own loop."""


def ignores_accumulation(model: Any) -> bool | None:
    """For the Trainer that is calling us with `model`; None where that cannot be told."""
    trainer = _trainer(sys._getframe(1))
    if trainer is None:
        return None
    divides = not trainer.model_accepts_loss_kwargs or getattr(trainer, "loss_is_scaled_for_ga", None) is False
    if divides or trainer.compute_loss_func is not None or trainer.label_smoother is not None:
        return False
    theirs = sys.modules["transformers.trainer"].Trainer.compute_loss
    if type(trainer).compute_loss is not theirs:
        return None
    forward = inspect.unwrap(type(_innermost(model)).forward)
    if not forward.__module__.startswith("transformers.models."):
        return None
    return "loss_fct" in forward.__code__.co_varnames


def _trainer(frame: FrameType | None) -> Any:
    for _ in range(DEEPEST):
        if frame is None:
            return None
        found = frame.f_locals.get("self")
        if hasattr(found, "model_accepts_loss_kwargs") and hasattr(found, "compute_loss_func"):
            return found
        frame = frame.f_back
    return None


def _innermost(model: Any) -> Any:
    """The model without what compiler, DDP and PEFT wrap it in."""
    model = getattr(model, "_orig_mod", model)
    model = getattr(model, "module", model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model
