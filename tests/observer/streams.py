"""Streams that divide their samples among workers in many ways, or not at all. Imports torch."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

COUNT = 64


class Whole(IterableDataset[Any]):
    """Reads everything, whichever worker it is in."""

    first, step = 0, 1

    def __iter__(self) -> Iterator[Any]:
        return (torch.tensor([index, index * index]) for index in range(self.first, COUNT, self.step))


class Divided(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        yield from itertools.islice(Whole(), first, None, step)


class DividedByMethod(Whole):
    def part(self, files: list[int]) -> list[int]:
        worker = get_worker_info()
        return files if worker is None else files[worker.id :: worker.num_workers]

    def __iter__(self) -> Iterator[Any]:
        return (torch.tensor([file]) for file in self.part(list(range(COUNT))))


def my_part(samples: Iterable[Any]) -> Iterable[Any]:
    worker = torch.utils.data.get_worker_info()
    return samples if worker is None else itertools.islice(samples, worker.id, None, worker.num_workers)


class DividedByFunction(Whole):
    def __iter__(self) -> Iterator[Any]:
        yield from my_part(super().__iter__())


class Seeded(Whole):
    """Asks for its worker only to draw other random numbers."""

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        generator = random.Random(0 if worker is None else worker.seed)
        return (sample + generator.random() for sample in super().__iter__())


class Drawn(IterableDataset[Any]):
    """Every worker draws samples of its own."""

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        generator = torch.Generator().manual_seed(0 if worker is None else worker.id)
        for _ in range(COUNT):
            yield torch.rand(2, generator=generator)


class SeededRows(Drawn):
    """Reads everything in an order of its worker's."""

    def __init__(self) -> None:
        self.rows = list(range(COUNT))

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        generator = random.Random(0 if worker is None else worker.id)
        while True:
            yield torch.tensor([generator.choice(self.rows)])


class Shuffled(IterableDataset[Any]):
    """Passes on what other streams deliver."""

    def __init__(self, *sources: IterableDataset[Any]) -> None:
        self.sources = sources

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain(*self.sources)


class MapStyle(Dataset[Any]):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index])


def assign_part(worker_id: int, of: str = "") -> None:
    worker = get_worker_info()
    assert worker is not None
    dataset: Any = worker.dataset
    dataset.first, dataset.step = worker_id, worker.num_workers


def seed_worker(worker_id: int) -> None:
    random.seed(worker_id)
