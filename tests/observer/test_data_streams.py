"""Streams that divide their samples among workers, and streams of which each worker delivers all."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import ChainDataset, DataLoader, Dataset, IterableDataset, get_worker_info  # noqa: E402

from tuner_tui.observer.site._tuner_observer.data_streams import DrawnSamples, repeats_in_workers  # noqa: E402
from tuner_tui.observer.site._tuner_observer.hooks.dataloaders import loader_settings  # noqa: E402

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


@pytest.mark.parametrize(
    ("dataset", "worker_init_fn", "repeats"),
    [
        (MapStyle(), None, False),
        (Divided(), None, False),
        (DividedByMethod(), None, False),
        (DividedByFunction(), None, False),
        (Shuffled(Divided(), Divided()), None, False),
        (ChainDataset([Divided()]), None, False),
        (Whole(), assign_part, False),
        (Whole(), functools.partial(assign_part, of="files"), False),
        (Whole(), None, True),
        (Whole(), seed_worker, True),
        (Seeded(), None, True),
        (Shuffled(Whole()), None, True),
        (Shuffled(Divided(), Whole()), None, True),
        (ChainDataset([Whole()]), None, True),
    ],
)
def test_which_streams_workers_would_repeat(
    dataset: Dataset[Any], worker_init_fn: Callable[[int], None] | None, repeats: bool
) -> None:
    assert repeats_in_workers(dataset, worker_init_fn) is repeats


def test_a_loader_reports_the_stream_that_its_workers_would_repeat() -> None:
    assert loader_settings(DataLoader(Whole()))["workers_repeat"] is True
    assert "workers_repeat" not in loader_settings(DataLoader(Divided()))


def test_streams_of_packages_divide_themselves() -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"x": list(range(8))})
    stream = rows.to_iterable_dataset(num_shards=4).with_format("torch")
    assert not repeats_in_workers(stream)
    assert not repeats_in_workers(Shuffled(stream))
    assert not repeats_in_workers(Shuffled(rows.to_iterable_dataset()))
    assert repeats_in_workers(Shuffled(rows)), "a stream over data that has no order of its own"


def drawn(dataset: Dataset[Any], workers: int, batch_size: int = 4, epochs: int = 1, **options: Any) -> list[int]:
    loader: DataLoader[Any] = DataLoader(dataset, batch_size, num_workers=workers, **options)
    samples = DrawnSamples(dataset)
    for _ in range(epochs):
        iterator = iter(loader)
        for batch in iterator:
            samples.delivered(batch, iterator)
    return samples.repeated


def test_repeated_samples_are_counted_as_they_are_drawn() -> None:
    assert drawn(Whole(), workers=0) == [0] * 7, "of the first 1, 2, 4 … 64"
    assert drawn(Whole(), workers=0, epochs=2) == [0] * 7, "another epoch repeats them all"
    assert drawn(Divided(), workers=2) == [0] * 7
    assert drawn(Whole(), workers=2) == [0, 0, 0, 4, 8, 16, 32, 64], "both workers deliver the same batches"
    assert drawn(Whole(), workers=2, persistent_workers=True, epochs=2)[:8] == [0, 0, 0, 4, 8, 16, 32, 64]


def test_samples_of_many_kinds_are_compared() -> None:
    def kinds(samples: list[Any]) -> Any:
        tensors = [sample.double() for sample in samples]
        return {"label": torch.zeros(len(samples)), "inputs": (torch.stack(tensors), ["text"])}

    assert drawn(Whole(), workers=0, collate_fn=kinds) == [0] * 7
    assert drawn(Whole(), workers=0, batch_size=100, collate_fn=lambda samples: [str(samples)]) == [0]
