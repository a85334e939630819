"""Streams, the iterable datasets of a DataLoader: whether they divide their samples among workers, and what they draw.

Each worker has a copy of the dataset. Of a stream that does not divide itself, all of them deliver all samples, so that
the training sees each one as many times as there are workers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from .names import NAMES

DIVIDING_PIPE = "ShardingFilter"
"""Part of the name of the data pipes that the DataLoader divides."""
MAX_HELD = 32
"""Most items of a list or dictionary that are searched for further datasets."""


def length_of(data: Any) -> int | None:
    """The length of a dataset or loader, None if it has none."""
    try:
        return len(data)
    except (TypeError, NotImplementedError):
        return None


def is_stream(dataset: Any) -> bool:
    """Whether this is an iterable dataset."""
    stream_class = getattr(sys.modules.get("torch.utils.data"), "IterableDataset", ())
    return isinstance(dataset, stream_class)


def repeats_in_workers(dataset: Any, worker_init_fn: Any = None) -> bool:
    """Whether several workers would deliver the same samples: a stream that is not known to divide itself."""
    if not is_stream(dataset) or _reachable_names(worker_init_fn, dataset, set()) >= NAMES["assigning_workers"]:
        return False
    return not _divides(dataset, set())


def _divides(dataset: Any, seen: set[int]) -> bool:
    seen.add(id(dataset))
    classes = type(dataset).__mro__
    if any(DIVIDING_PIPE in cls.__name__ for cls in classes):
        return True
    packages = {cls.__module__.partition(".")[0] for cls in classes}
    if packages & NAMES["dividing_packages"] and (is_stream(dataset) or not hasattr(dataset, "__getitem__")):
        return True
    iterates = getattr(type(dataset), "__iter__", None)
    names = _reachable_names(iterates, dataset, set())
    if names >= NAMES["dividing_streams"] or ("get_worker_info" in names and not _reads(iterates, names, dataset)):
        return True
    held = [value for value in _held(dataset) if id(value) not in seen and hasattr(type(value), "__iter__")]
    sources = [value for value in held if is_stream(value)] or [
        value for value in held if hasattr(type(value).__iter__, "__code__")
    ]
    return bool(sources) and all(_divides(source, seen) for source in sources)


def _reads(iterates: Any, names: set[str], dataset: Any) -> bool:
    """Whether a stream may read samples, rather than draw each one from the random numbers of its worker."""
    module = getattr(iterates, "__globals__", {})
    values = [*getattr(dataset, "__dict__", {}).values(), *(module[name] for name in names & module.keys())]
    return bool(names & NAMES["reading_streams"]) or any(hasattr(type(value), "__iter__") for value in values)


def _held(dataset: Any) -> Iterator[Any]:
    """What the attributes of the dataset hold, in lists and dictionaries too."""
    for value in list(getattr(dataset, "__dict__", {}).values()):
        if isinstance(value, (list, tuple)):
            yield from value[:MAX_HELD]
        elif isinstance(value, dict):
            yield from list(value.values())[:MAX_HELD]
        else:
            yield value


def _reachable_names(function: Any, dataset: Any, seen: set[Any]) -> set[str]:
    """The names in the code of `function`, and of what it calls of its module and of the dataset."""
    function = getattr(function, "func", function)  # of a `functools.partial`
    function = getattr(function, "fget", function)  # of a property
    code = getattr(function, "__code__", None)
    if code is None or code in seen:
        return set()
    seen.add(code)
    names = set(_names(code))
    owners: list[Any] = [vars(cls) for cls in type(dataset).__mro__]
    owners += [getattr(dataset, "__dict__", {}), getattr(function, "__globals__", {})]
    called = [owner[name] for owner in owners for name in names if name in owner]
    return names.union(*(_reachable_names(each, dataset, seen) for each in called))


def _names(code: Any) -> Iterator[str]:
    """The global names and attributes that the code uses, generators and functions within it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            yield from _names(constant)


MAX_BATCHES = 64
MAX_ROWS = 32
"""Rows of a batch that are compared; workers that read the same samples deliver the same batches."""


class DrawnSamples:
    """Counts the samples that the first epoch of a stream delivers more than once.

    `repeated` has a count for the first 1, 2, 4, 8 … samples, so that trainings that drew more or fewer compare.
    """

    def __init__(self, dataset: Any) -> None:
        self.repeated: list[int] = []
        self._dataset = dataset
        self._batches = self._rows = self._repeats = 0
        self._seen: set[int] = set()

    def delivered(self, batch: Any, iterator: Any) -> None:
        """Count the samples of a batch that `iterator` has just returned."""
        if self._batches >= MAX_BATCHES or iterator._dataset is not self._dataset:
            return
        self._batches += 1
        if iterator._num_yielded != self._batches:  # another epoch, whose samples are the same
            self._batches = MAX_BATCHES
            return
        for row in _rows(batch):
            self._repeats += row in self._seen
            self._seen.add(row)
            self._rows += 1
            if self._rows & (self._rows - 1) == 0:
                self.repeated.append(self._repeats)


def _rows(batch: Any) -> list[int]:
    """A hash of each sample of the batch, by all of its tensors; of the whole batch if it has none."""
    tensors = [tensor for tensor in _tensors(batch) if tensor.dim()]
    count = min((len(tensor) for tensor in tensors), default=0)
    if not count:
        return [hash(repr(batch))]
    return [hash(tuple(_content(tensor[row]) for tensor in tensors)) for row in range(min(count, MAX_ROWS))]


def _content(tensor: Any) -> Any:
    return tensor.detach().cpu().contiguous().reshape(-1).view(sys.modules["torch"].uint8).numpy().tobytes()


def _tensors(batch: Any) -> Iterator[Any]:
    if hasattr(batch, "dim") and hasattr(batch, "detach"):
        yield batch
    elif hasattr(batch, "values") and callable(batch.values):
        for value in batch.values():
            yield from _tensors(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from _tensors(value)
