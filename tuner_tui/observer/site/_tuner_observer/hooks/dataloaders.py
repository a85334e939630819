"""Hooks every DataLoader: time spent waiting for batches, their contents, and the loader's settings."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..counters.batch_stats import EMPTY_LAYOUT, IteratorStats
from ..counters.record_buffer import MAX_MASK_RECORDS
from ..import_hooks import call_safely

if TYPE_CHECKING:
    from ..counters.step_counters import StepCounters

    SettingsCallback = Callable[[dict[str, Any]], None]

perf_counter = time.perf_counter
get_ident = threading.get_ident

ITER_CALLER_DEPTH = 4
"""Frames from `_prefetches_one_batch` up to the code that called `DataLoader.__iter__`."""


def hook_dataloaders(module: Any, counters: StepCounters, tell_settings: SettingsCallback) -> None:
    """Wrap iteration of `torch.utils.data.dataloader`. `tell_settings` is given those of training loaders."""
    _hook_iter(module.DataLoader, counters, tell_settings)
    _hook_next(module._BaseDataLoaderIter, counters)


def _hook_iter(loader_class: Any, counters: StepCounters, tell_settings: SettingsCallback) -> None:
    """Starting the workers of an epoch is waiting for data too."""
    original = loader_class.__iter__

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        began_s = perf_counter()
        iterator = original(self)
        call_safely(_iteration_started, self, iterator, counters, tell_settings, began_s)
        return iterator

    loader_class.__iter__ = __iter__


def _iteration_started(
    loader: Any, iterator: Any, counters: StepCounters, tell_settings: SettingsCallback, began_s: float
) -> None:
    source = iterator.__dict__.get("_tuner_source")
    if source is None:
        source = iterator._tuner_source = IteratorStats(_prefetches_one_batch(loader))
    counters.read()
    source.began()
    if not counters.evaluation.running():
        counters.waiting(began_s, source)
        source.wait_s += perf_counter() - began_s
        source.on_trained = functools.partial(tell_settings, loader_settings(loader))


def _prefetches_one_batch(loader: Any) -> bool:
    """Whether its reader fetches a batch before it hands on the last one.

    accelerate's loaders do: they iterate, or they are, the loader. Lightning does where it cannot know the last one.
    """
    if type(loader).__module__ == "accelerate.data_loader":
        return type(loader).__name__ != "SkipDataLoader"
    frame = sys._getframe(ITER_CALLER_DEPTH)
    caller = frame.f_globals.get("__name__", "")
    if caller.endswith("pytorch.utilities.combined_loader"):
        return not _is_sized(loader)
    return caller == "accelerate.data_loader" and "next_batch" in frame.f_code.co_varnames


def _is_sized(loader: Any) -> bool:
    try:
        return len(loader) >= 0
    except (TypeError, NotImplementedError):
        return False


def loader_settings(loader: Any) -> dict[str, Any]:
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


def _hook_next(iterator_class: Any, counters: StepCounters) -> None:
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
                source = self._tuner_source = IteratorStats()
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
                if ended_s >= journal.due_s or (layout.first and len(notes) >= MAX_MASK_RECORDS):
                    counters.read()
            except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
                source.layout = EMPTY_LAYOUT
        return batch

    iterator_class.__next__ = __next__
