"""One evaluation batch at the end of a trial: a batch that trains may still be too large to evaluate beside it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import longest
from .crashes import is_out_of_memory

if TYPE_CHECKING:
    from .evaluation import Evaluation
    from .session import Session


def evaluate(trainer: Any, evaluation: Evaluation, session: Session, alone: bool, within_s: float) -> str:
    """Have a Trainer evaluate its longest batch, and say what came of it. Out of memory ends the process, told."""
    if trainer is None:
        return "no evaluation: only a Trainer shows how it evaluates"
    if not alone:
        return "no evaluation: several processes"
    evaluation.depth += 1
    session.enter("evaluating")
    try:
        return _one_batch(trainer, within_s)
    except Exception as error:  # noqa: BLE001 - outermost edge inside somebody else's process
        kind = type(error).__name__
        if not is_out_of_memory(kind, str(error)):
            return f"no evaluation: {kind}: {str(error).partition(chr(10))[0][:200]}"
        session.open()
        session.tell("out-of-memory", message=str(error)[:4000] or kind, where="evaluating", step=session.step)
        os._exit(1)
    finally:
        evaluation.depth -= 1


def _one_batch(trainer: Any, within_s: float) -> str:
    if trainer.eval_dataset is None:
        return "no evaluation: there is no data for it"
    loader = trainer.get_eval_dataloader()
    first = [True]
    said = longest.arrange(getattr(loader, "base_dataloader", loader), lambda: bool(first and first.pop()), within_s)
    batch = next(iter(loader))
    model = trainer.model_wrapped
    was_training = model.training
    model.eval()
    try:
        trainer.prediction_step(model, batch, prediction_loss_only=trainer.compute_metrics is None)
    finally:
        model.train(was_training)
    return f"one batch, {said}"
