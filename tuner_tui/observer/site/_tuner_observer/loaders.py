"""Watch every DataLoader of the process: how long its batches are waited for, and the settings it really has."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .batches import NO_LAYOUT
from .importing import call_safely
from .journal import MOST_NOTES
from .sources import Source

if TYPE_CHECKING:
    from .counters import Counters

    TellSettings = Callable[[dict[str, Any]], None]

perf_counter = time.perf_counter
get_ident = threading.get_ident

ITER_CALLER = 4
"""Frames from `_looks_ahead` up to the code that called `DataLoader.__iter__`."""


def watch(module: Any, counters: Counters, tell_settings: TellSettings) -> None:
    """Wrap iteration of `torch.utils.data.dataloader`. `tell_settings` is given those of training loaders."""
    _watch_iter(module.DataLoader, counters, tell_settings)
    _watch_next(module._BaseDataLoaderIter, counters)


def _watch_iter(loader_class: Any, counters: Counters, tell_settings: TellSettings) -> None:
    """Starting the workers of an epoch is waiting for data too."""
    original = loader_class.__iter__

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        began_s = perf_counter()
        iterator = original(self)
        call_safely(_started, self, iterator, counters, tell_settings, began_s)
        return iterator

    loader_class.__iter__ = __iter__


def _started(loader: Any, iterator: Any, counters: Counters, tell_settings: TellSettings, began_s: float) -> None:
    source = iterator.__dict__.get("_tuner_source")
    if source is None:
        source = iterator._tuner_source = Source(_looks_ahead(loader))
    counters.read()
    source.began()
    if not counters.evaluation.running():
        counters.waiting(began_s, source)
        source.wait_s += perf_counter() - began_s
        source.on_trained = functools.partial(tell_settings, settings_of(loader))


def _looks_ahead(loader: Any) -> bool:
    """Whether its reader fetches a batch before it hands on the last one.

    accelerate's loaders do: they iterate, or they are, the loader. Lightning does where it cannot know the last one.
    """
    if type(loader).__module__ == "accelerate.data_loader":
        return type(loader).__name__ != "SkipDataLoader"
    frame = sys._getframe(ITER_CALLER)
    caller = frame.f_globals.get("__name__", "")
    if caller.endswith("pytorch.utilities.combined_loader"):
        return not _is_sized(loader)
    return caller == "accelerate.data_loader" and "next_batch" in frame.f_code.co_varnames


def _is_sized(loader: Any) -> bool:
    try:
        return len(loader) >= 0
    except (TypeError, NotImplementedError):
        return False


def settings_of(loader: Any) -> dict[str, Any]:
    """What the loader was built with. Nothing here starts a worker or draws a random number."""
    workers = loader.num_workers
    return {
        "per_device_train_batch_size": loader.batch_size or getattr(loader.batch_sampler, "batch_size", None),
        "dataloader_num_workers": workers,
        "dataloader_prefetch_factor": loader.prefetch_factor if workers else None,
        "dataloader_pin_memory": bool(loader.pin_memory),
        "dataloader_persistent_workers": bool(getattr(loader, "persistent_workers", False)),
        "dataloader_drop_last": bool(loader.drop_last),
    }


def _watch_next(iterator_class: Any, counters: Counters) -> None:
    """The hot path: see `journal` for why it only takes notes."""
    original = iterator_class.__next__
    journal, grad_enabled = counters.journal, counters.evaluation.grad_enabled
    notes = journal.notes

    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        began_s = perf_counter()
        try:
            source = self.__dict__.get("_tuner_source")
            if source is None:
                source = self._tuner_source = Source()
            training = (journal.steady and grad_enabled()) or counters.waiting(began_s, source)
        except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
            return original(self)
        try:
            batch = original(self)
        except StopIteration:
            if training:
                call_safely(counters.ended, source, began_s, perf_counter())
            raise
        if training:
            ended_s = perf_counter()
            try:
                layout = source.layout
                if layout.batch_type is not type(batch):
                    layout = counters.layout_of(source, batch)
                notes.append((source, began_s, ended_s, get_ident(), layout.measure(batch, ended_s)))
                if ended_s >= journal.due_s or (layout.first and len(notes) >= MOST_NOTES):
                    counters.read()
            except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
                source.layout = NO_LAYOUT
        return batch

    iterator_class.__next__ = __next__
