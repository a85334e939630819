"""Puts the longest batch first, so that a trial meets the memory peak of the training."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..counters.batch_stats import TOKEN_NAMES

ROWS_A_READ = 2048
"""Table rows per read."""
MIN_EQUAL_SAMPLES = 50
"""Samples of equal length after which others, if reading takes long, are taken to have it too: most likely less than
one in twenty has another."""
EQUAL_SHARE = 0.25
"""Share of the time for reading lengths after which that is assumed."""
LENGTH_COLUMNS = ("length", *TOKEN_NAMES, "attention_mask")


class LongestBatchSampler:
    """A batch sampler that yields the indices `longest` instead of its own batch when `due()` is true."""

    def __init__(self, sampler: Any, longest: list[int], due: Callable[[], bool]) -> None:
        self._sampler = sampler
        self._longest = longest
        self._due = due

    def __iter__(self) -> Iterator[Any]:
        for batch in self._sampler:
            yield [*self._longest, *batch][: len(batch)] if self._due() else batch

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)


def put_longest_batch_first(loader: Any, due: Callable[[], bool], within_s: float) -> str:
    """Make `loader` yield its longest batch when `due()` is true. Returns a sentence on what was done or why not."""
    sampler, dataset = loader.batch_sampler, loader.dataset
    size = getattr(sampler, "batch_size", None) or loader.batch_size
    if sampler is None or not size:
        return "longest batch not first: the loader makes no batches"
    total = dataset_size(dataset)
    if total is None:
        return "longest batch not first: the dataset is a stream"
    lengths = sample_lengths(dataset, total, within_s)
    if not lengths:
        return "longest batch not first: the length of the samples is unknown"
    if len(set(lengths.values())) == 1 and len(lengths) >= min(total, MIN_EQUAL_SAMPLES):
        return f"the longest batch is any batch: {len(lengths):,} of {total:,} samples have {max(lengths.values()):,}"
    longest = sorted(lengths, key=lengths.__getitem__, reverse=True)[: int(size)]
    loader.__dict__["batch_sampler"] = LongestBatchSampler(sampler, longest, due)
    seen = f"{len(lengths):,} of {total:,}" if len(lengths) < total else f"{total:,}"
    return f"longest batch first, of {seen} samples: up to {lengths[longest[0]]:,}"


def dataset_size(dataset: Any) -> int | None:
    """Number of samples of a map-style dataset, None for a stream."""
    if not hasattr(dataset, "__getitem__"):
        return None
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def sample_lengths(
    dataset: Any, total: int, within_s: float, clock: Callable[[], float] = time.monotonic
) -> dict[int, int]:
    """Lengths of the samples that could be read within `within_s` seconds, by index; of fewer if all are equal."""
    start = clock()
    deadline, equal_deadline = start + within_s, start + EQUAL_SHARE * within_s
    columns = getattr(dataset, "column_names", None)
    name = next((name for name in LENGTH_COLUMNS if isinstance(columns, list) and name in columns), None)
    if name is not None and hasattr(dataset, "with_format") and "pyarrow" in sys.modules:
        return _arrow_lengths(dataset.with_format("arrow"), name, total, deadline, clock)
    lengths: dict[int, int] = {}
    differs = False
    for index in _spread_indices(total):
        length = _sample_length(dataset[index])
        if length is None:
            return {}
        differs = differs or length != lengths.get(0, length)
        lengths[index] = length
        if clock() > (deadline if differs or len(lengths) < MIN_EQUAL_SAMPLES else equal_deadline):
            break
    return lengths


def _arrow_lengths(table: Any, name: str, total: int, deadline: float, clock: Callable[[], float]) -> dict[int, int]:
    """For a Hugging Face dataset: read the Arrow column without creating a Python object per token."""
    import pyarrow
    import pyarrow.compute

    lengths: dict[int, int] = {}
    for start in range(0, total, ROWS_A_READ):
        column = table[start : min(total, start + ROWS_A_READ)][name]
        nested = hasattr(column.type, "value_type")
        values = pyarrow.compute.list_value_length(column) if nested else column
        for offset, value in enumerate(values.to_pylist()):
            lengths[start + offset] = int(value or 0)
        if clock() > deadline:
            break
    return lengths


def _spread_indices(total: int) -> Iterator[int]:
    """All indices, those spread evenly over the dataset first."""
    stride = max(1, total // 1024)
    return (index for first in range(stride) for index in range(first, total, stride))


def _sample_length(sample: Any) -> int | None:
    """Tokens of a sample, else its number of elements; None if it has no length."""
    if hasattr(sample, "keys"):
        named = next((sample[name] for name in TOKEN_NAMES if name in sample), None)
        return _total_count(sample.values()) if named is None else _element_count(named)
    if isinstance(sample, (tuple, list)) and not all(isinstance(value, (int, float)) for value in sample):
        return _total_count(sample)
    return _element_count(sample)


def _total_count(values: Any) -> int | None:
    counts = [count for count in map(_element_count, values) if count is not None]
    return sum(counts) if counts else None


def _element_count(value: Any) -> int | None:
    if hasattr(value, "numel"):
        return int(value.numel())
    if hasattr(value, "size") and isinstance(value.size, int):
        return int(value.size)
    return len(value) if isinstance(value, (list, tuple, str, bytes)) else None
