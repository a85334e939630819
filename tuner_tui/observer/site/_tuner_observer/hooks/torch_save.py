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
    """`torch.save`, by both its names."""
    torch.save = torch.serialization.save = _wrap_save(torch.serialization.save, counters)


def hook_safetensors(module: Any, counters: StepCounters) -> None:
    """`safetensors.torch.save_file`, by which `save_pretrained` writes."""
    module.save_file = _wrap_save(module.save_file, counters)


def _wrap_save(original: Any, counters: StepCounters) -> Any:
    """A trainer's own checkpoint is a pause already, and nothing is added to it."""
    thread = threading.get_ident()

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        paused = threading.get_ident() == thread and call_safely(_pause, counters)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            if paused:
                counters.session.failed_in = (id(error), "saving")
            raise
        finally:
            if paused:
                call_safely(counters.end_pause)

    return save


def _pause(counters: StepCounters) -> bool:
    """Only once steps were made: what is saved before is no training's."""
    counters.read()
    return counters.own_steps > 0 and counters.pause("saving", time.perf_counter())
