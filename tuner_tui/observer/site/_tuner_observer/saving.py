"""Saves of a loop that says nothing: training stands still while weights are written."""

from __future__ import annotations

import functools
import threading
import time
from typing import TYPE_CHECKING, Any

from .importing import call_safely

if TYPE_CHECKING:
    from .counters import Counters


def watch_torch(torch: Any, counters: Counters) -> None:
    """`torch.save`, by both its names."""
    torch.save = torch.serialization.save = _paused_during(torch.serialization.save, counters)


def watch_safetensors(module: Any, counters: Counters) -> None:
    """`safetensors.torch.save_file`, by which `save_pretrained` writes."""
    module.save_file = _paused_during(module.save_file, counters)


def _paused_during(original: Any, counters: Counters) -> Any:
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


def _pause(counters: Counters) -> bool:
    """Only once steps were made: what is saved before is no training's."""
    counters.read()
    return counters.own_steps > 0 and counters.pause("saving", time.perf_counter())
