"""Hooks torch.save and safetensors.torch.save_file: training is paused while a plain loop writes weights."""

from __future__ import annotations

import functools
import threading
import time
from typing import TYPE_CHECKING, Any

from ..import_hooks import call_safely

if TYPE_CHECKING:
    from ..counters.step_counters import StepCounters


def hook_torch_save(torch: Any, counters: StepCounters) -> None:
    """Hook `torch.save` under both its names."""
    torch.save = torch.serialization.save = _wrap_save(torch.serialization.save, counters)


def hook_safetensors(module: Any, counters: StepCounters) -> None:
    """Hook `safetensors.torch.save_file`, which `save_pretrained` uses."""
    module.save_file = _wrap_save(module.save_file, counters)


def _wrap_save(original: Any, counters: StepCounters) -> Any:
    """Does nothing within a framework's own checkpoint, which is a pause already."""
    thread = threading.get_ident()

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        paused = threading.get_ident() == thread and call_safely(_pause, counters)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            if paused:
                counters.session.failure = (id(error), "saving")
            raise
        finally:
            if paused:
                call_safely(counters.end_pause)

    return save


def _pause(counters: StepCounters) -> bool:
    """Pause only after the first step: earlier saves are not part of the training.

    A plain loop does not say when its evaluation has ended; a save right after it is no part of it.
    """
    counters.invalidate()
    if counters.own_steps < 1:
        return False
    now = time.perf_counter()
    evaluated = not counters.evaluation.depth and counters.clock.save_after_evaluation(now)
    return evaluated or counters.pause("saving", now)
