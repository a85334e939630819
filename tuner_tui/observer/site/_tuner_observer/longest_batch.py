"""Puts the longest batch first, so that a trial meets the memory peak of the training."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from .counters.batch_stats import TOKEN_NAMES
from .data_streams import is_stream, length_of
from .names import LIBRARIES

ROWS_A_READ = 2048
"""Table rows per read."""
MIN_EQUAL_SAMPLES = 50
"""Samples of equal length after which others, if reading takes long, are taken to have it too: most likely less than
one in twenty has another."""
EQUAL_SHARE = 0.25
"""Share of the time for reading lengths after which that is assumed."""
LENGTH_COLUMNS = ("length", *TOKEN_NAMES, "attention_mask")


MOST_WORST = 3
"""Batches that are put first one after another."""
MOST_DRAWN = 2000
"""Batches drawn from a sampler to find its worst ones."""


class LongestBatchSampler:
    """A sampler that yields the `worst` batches instead of its own when `due()` is true.

    Of a sampler of `fixed` size, each has as many samples as the batch that it replaces.
    """

    def __init__(self, sampler: Any, worst: list[Any], due: Callable[[], bool], fixed: bool = True) -> None:
        self._sampler = sampler
        self._worst = worst
        self._due = due
        self._fixed = fixed

    def __iter__(self) -> Iterator[Any]:
        waiting: list[Any] = []
        for batch in self._sampler:
            if self._due():
                waiting = list(self._worst)
            if not waiting:
                yield batch
            elif self._fixed:
                yield [*waiting.pop(0), *batch][: len(batch)]
            else:
                yield waiting.pop(0)

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)


def put_longest_batch_first(loader: Any, due: Callable[[], bool], within_s: float) -> str:
    """Make `loader` yield its longest batch when `due()` is true. Returns a sentence on what was done or why not."""
    sampler, dataset = loader.batch_sampler, loader.dataset
    size = getattr(sampler, "batch_size", None) or loader.batch_size
    total = dataset_size(dataset)
    if not size:
        return _put_largest_first(loader, total, due, within_s)
    if total is None or is_stream(dataset):
        return "longest batch not first: the dataset is a stream"
    lengths = sample_lengths(dataset, total, within_s)
    if not lengths:
        return "longest batch not first: the length of the samples is unknown"
    if len(set(lengths.values())) == 1 and len(lengths) >= min(total, MIN_EQUAL_SAMPLES):
        return f"the longest batch is any batch: {len(lengths):,} of {total:,} samples have {max(lengths.values()):,}"
    longest = sorted(lengths, key=lengths.__getitem__, reverse=True)[: int(size)]
    loader.__dict__["batch_sampler"] = LongestBatchSampler(sampler, [longest], due)
    seen = f"{len(lengths):,} of {total:,}" if len(lengths) < total else f"{total:,}"
    return f"longest batch first, of {seen} samples: up to {lengths[longest[0]]:,}"


def _put_largest_first(loader: Any, total: int | None, due: Callable[[], bool], within_s: float) -> str:
    """For batches of no fixed number, such as those of a certain total length.

    The peak may be that of the batch with the most elements, of the one with the longest sample (attention), or of the
    one with the most samples, which are the shortest, as for what is kept per sample. So all three come first.
    """
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    sampler = getattr(loader, name)
    lengths = {} if total is None else sample_lengths(loader.dataset, total, within_s / 2)
    batches = _drawn_batches(sampler, within_s / 2)
    if not batches:
        return "longest batch not first: the loader makes no batches"
    sizes = [(len(batch), max((_drawn_length(sample, lengths) for sample in batch), default=0)) for batch in batches]
    heaviest = max(range(len(batches)), key=lambda at: (sizes[at][0] * sizes[at][1], sizes[at]))
    longest = max(range(len(batches)), key=lambda at: sizes[at][::-1])
    fullest = max(range(len(batches)), key=lambda at: sizes[at])
    worst = list(dict.fromkeys((heaviest, longest, fullest)))
    loader.__dict__[name] = LongestBatchSampler(sampler, [batches[at] for at in worst], due, fixed=False)
    largest = ", ".join(f"{sizes[at][0]:,} × {sizes[at][1]:,.0f}" for at in worst)
    return f"largest batch first, of {len(batches):,} batches: {largest}"


def _drawn_batches(sampler: Any, within_s: float) -> list[Any]:
    """The batches that the sampler yields within `within_s`; none if it yields single samples."""
    deadline = time.monotonic() + within_s
    batches: list[Any] = []
    for batch in sampler or ():
        if not hasattr(batch, "__len__") or isinstance(batch, (str, bytes)):
            return []
        batches.append(batch)
        if len(batches) >= MOST_DRAWN or time.monotonic() > deadline:
            break
    return batches


def _drawn_length(sample: Any, lengths: dict[int, int]) -> float:
    """The length of a sample by its index, or of what a sampler of speech yields instead; 0 if it is unknown."""
    if isinstance(sample, int):
        return lengths.get(sample, 0)
    lengths_by_name = (getattr(sample, name, None) for name in LIBRARIES["sample_durations"])
    return next((float(length) for length in lengths_by_name if length is not None), 0)


def dataset_size(dataset: Any) -> int | None:
    """Number of samples of a map-style dataset, None for a stream."""
    return length_of(dataset) if hasattr(dataset, "__getitem__") else None


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
    stride = max(1, total // 1024)
    for index in (index for first in range(stride) for index in range(first, total, stride)):  # spread evenly first
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


def _sample_length(sample: Any) -> int | None:
    """Tokens of a sample, else its number of elements; None if it has no length."""
    parts = [sample]
    if hasattr(sample, "keys"):
        parts = [sample[name] for name in TOKEN_NAMES if name in sample][:1] or list(sample.values())
    elif isinstance(sample, (tuple, list)) and not all(isinstance(value, (int, float)) for value in sample):
        parts = list(sample)
    counts = [count for count in map(_element_count, parts) if count is not None]
    return sum(counts) if counts else None


def _element_count(value: Any) -> int | None:
    if hasattr(value, "numel"):
        return int(value.numel())
    if hasattr(value, "size") and isinstance(value.size, int):
        return int(value.size)
    return len(value) if isinstance(value, (list, tuple, str, bytes)) else None
