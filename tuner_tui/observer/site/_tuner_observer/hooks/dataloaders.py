"""Hooks every DataLoader: time spent waiting for batches, their contents, and the loader's settings."""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..counters.batch_stats import EMPTY_LAYOUT, IteratorStats
from ..counters.step_counters import MAX_MASK_RECORDS, StepCounters
from ..data_streams import length_of, repeats_in_workers
from ..import_hooks import call_after, call_around, call_before, call_safely, outer_frame, replacing
from ..settings_in_effect import MICRO_BATCH

if TYPE_CHECKING:
    SettingsCallback = Callable[[dict[str, Any]], None]

perf_counter = time.perf_counter
get_ident = threading.get_ident

MAX_ROWS_AHEAD = 4096
"""Batches that a sampler may draw before they are delivered."""
MAX_ROWS_OF_A_SAMPLE = 2
"""Rows that a collator makes of one sample, such as the chosen and the rejected answer."""


def hook_dataloaders(module: Any, counters: StepCounters, on_settings: SettingsCallback) -> None:
    """Hook `torch.utils.data.dataloader`. `on_settings` receives the settings of training loaders."""

    def started(before: tuple[Any, float], iterator: Any, error: BaseException | None) -> None:
        loader, began_s = before
        if error is None:  # starting the workers of an epoch counts as waiting for data
            stats = iterator.__dict__.get("_tuner_stats")
            if stats is None:
                stats = iterator._tuner_stats = IteratorStats(_prefetches(loader))
            counters.read()
            _start_epoch(stats, iterator, loader, counters, on_settings)
            if not counters.evaluation.is_evaluating():
                counters.batch_requested(began_s, stats)
                stats.wait_s += perf_counter() - began_s

    call_around(module.DataLoader, "__iter__", lambda loader: (loader, perf_counter()), started)
    iterators = module._BaseDataLoaderIter
    call_after(iterators, "__init__", lambda _, made, loader: setattr(made, "_tuner_loader", ref(loader)))
    call_after(iterators, "_next_index", lambda drawn, iterator: _sampled_rows(iterator).append(drawn))
    # Before workers that persist are asked for the first batches of the next epoch.
    call_before(iterators, "_reset", lambda iterator, *_, **__: iterator.__dict__.pop("_tuner_rows", None))
    _hook_next(iterators, counters, on_settings)


def _stats_of(iterator: Any, counters: StepCounters, on_settings: SettingsCallback) -> IteratorStats:
    """Of an iterator that its loader made in an `__iter__` of its own, as ultralytics' and fastai's do."""
    stats, reference = IteratorStats(), iterator.__dict__.get("_tuner_loader")
    loader = None if reference is None else reference()
    if loader is not None:
        _start_epoch(stats, iterator, loader, counters, on_settings)
    return stats


def _start_epoch(
    stats: IteratorStats, iterator: Any, loader: Any, counters: StepCounters, on_settings: SettingsCallback
) -> None:
    stats.batch_size, stats.exists, stats.loader = call_safely(_batch_size, loader), ref(iterator), ref(loader)
    rows = _sampled_rows(iterator) if getattr(iterator, "_in_order", True) else None
    stats.start_epoch(functools.partial(counters.next_epoch, ref(loader)), length_of(loader), rows)
    settings = loader_settings(loader)

    def trained() -> None:
        rows = int(stats.shape[0]) if stats.shape else 0
        if settings[MICRO_BATCH] is None and _batch_sampler(loader_of()) is None and rows:
            settings[MICRO_BATCH] = rows  # the data comes in batches already
        elif settings[MICRO_BATCH] == 1 and rows > MAX_ROWS_OF_A_SAMPLE:
            settings[MICRO_BATCH] = None  # so does this, or the rows are of one sample, such as the nodes of a graph
        on_settings(settings)

    loader_of, stats.on_trained = ref(loader), trained


def _prefetches(loader: Any) -> bool:
    """Whether the consumer fetches one batch ahead.

    accelerate's loaders do; they iterate over the loader or derive from it. Lightning does if the length is unknown.
    """
    if type(loader).__module__ == "accelerate.data_loader":
        return type(loader).__name__ != "SkipDataLoader"
    # Who iterates decides, not the loader: the same DataLoader may be wrapped by accelerate, or read by the script.
    frame = outer_frame()  # the caller of `DataLoader.__iter__`
    caller = frame.f_globals.get("__name__", "")
    if caller.endswith("pytorch.utilities.combined_loader"):
        return length_of(loader) is None
    return caller == "accelerate.data_loader" and "next_batch" in frame.f_code.co_varnames


def _batch_sampler(loader: Any) -> Any:
    return getattr(loader, "batch_sampler", None)


def _batch_size(loader: Any) -> int | None:
    """Samples that the collator gets at once, None if unknown."""
    size = getattr(loader, "batch_size", None) or getattr(_batch_sampler(loader), "batch_size", None)
    return size if isinstance(size, int) else None


def loader_settings(loader: Any) -> dict[str, Any]:
    """Options of the loader. Neither starts a worker nor draws a random number."""
    workers = loader.num_workers
    repeats = repeats_in_workers(loader.dataset, loader.worker_init_fn)
    return {
        **({"workers_repeat": True} if repeats else {}),
        MICRO_BATCH: _batch_size(loader),
        "dataloader_num_workers": workers,
        "dataloader_prefetch_factor": loader.prefetch_factor if workers else None,
        "dataloader_pin_memory": bool(loader.pin_memory),
        "dataloader_persistent_workers": bool(getattr(loader, "persistent_workers", False)),
        "dataloader_drop_last": bool(loader.drop_last or getattr(_batch_sampler(loader), "drop_last", False)),
    }


def _sampled_rows(iterator: Any) -> deque[Any]:
    """What the sampler has drawn for batches that are not delivered yet; workers deliver in the same order."""
    rows: deque[Any] = iterator.__dict__.setdefault("_tuner_rows", deque(maxlen=MAX_ROWS_AHEAD))
    return rows


def _hook_next(iterator_class: Any, counters: StepCounters, on_settings: SettingsCallback) -> None:
    """The hot path, which only appends records: see `RecordBuffer`."""
    original = iterator_class.__next__
    buffer, grad_enabled = counters.buffer, counters.evaluation.grad_enabled
    records = buffer.records

    @replacing(iterator_class, "__next__")
    def __next__(self: Any) -> Any:
        began_s = perf_counter()
        try:
            stats = self.__dict__.get("_tuner_stats")
            if stats is None:
                stats = self._tuner_stats = _stats_of(self, counters, on_settings)
            # Entering `no_grad` does not make the buffer unsteady, because many loops do so at every step. So gradients
            # are asked for here, which is cheap; everything else that may begin an evaluation calls `invalidate`.
            training = (buffer.steady and grad_enabled()) or counters.batch_requested(began_s, stats)
        except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
            return original(self)
        try:
            batch = original(self)
        except StopIteration:
            if training:
                call_safely(counters.loader_exhausted, stats, began_s, perf_counter())
            raise
        except Exception:
            if training:
                call_safely(counters.loading_failed, stats)
            raise
        if not training:
            call_safely(stats.evaluated)
        else:
            ended_s = perf_counter()
            try:
                layout = stats.layout
                if layout.batch_type is not type(batch):
                    layout = counters.layout_of(stats, batch)
                measured = layout.measure(batch, ended_s)
            except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
                layout = stats.layout = EMPTY_LAYOUT
                measured = layout.measure(batch, ended_s)
            records.append((stats, began_s, ended_s, get_ident(), measured))
            if ended_s >= buffer.due_s or (layout.first and len(records) >= MAX_MASK_RECORDS):
                call_safely(counters.read)
        return batch
