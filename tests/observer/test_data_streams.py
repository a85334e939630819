"""Streams that divide their samples among workers, and streams of which each worker delivers all."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from tests.late_module import late_module
from tuner_tui.observer.site._tuner_observer.data_streams import DrawnSamples, repeats_in_workers
from tuner_tui.observer.site._tuner_observer.hooks.dataloaders import loader_settings

torch, data, streams = late_module("torch"), late_module("torch.utils.data"), late_module("tests.observer.streams")


@pytest.mark.parametrize(
    ("dataset", "worker_init_fn", "repeats"),
    [
        (lambda: streams.MapStyle(), lambda: None, False),
        (lambda: streams.Divided(), lambda: None, False),
        (lambda: streams.DividedByMethod(), lambda: None, False),
        (lambda: streams.DividedByFunction(), lambda: None, False),
        (lambda: streams.Shuffled(streams.Divided(), streams.Divided()), lambda: None, False),
        (lambda: data.ChainDataset([streams.Divided()]), lambda: None, False),
        (lambda: streams.Whole(), lambda: streams.assign_part, False),
        (lambda: streams.Whole(), lambda: functools.partial(streams.assign_part, of="files"), False),
        (lambda: streams.Drawn(), lambda: None, False),
        (lambda: streams.Whole(), lambda: None, True),
        (lambda: streams.SeededRows(), lambda: None, True),
        (lambda: streams.Whole(), lambda: streams.seed_worker, True),
        (lambda: streams.Seeded(), lambda: None, True),
        (lambda: streams.Shuffled(streams.Whole()), lambda: None, True),
        (lambda: streams.Shuffled(streams.Divided(), streams.Whole()), lambda: None, True),
        (lambda: data.ChainDataset([streams.Whole()]), lambda: None, True),
    ],
)
def test_which_streams_workers_would_repeat(
    dataset: Callable[[], Any], worker_init_fn: Callable[[], Any], repeats: bool
) -> None:
    assert repeats_in_workers(dataset(), worker_init_fn()) is repeats


def test_a_loader_reports_the_stream_that_its_workers_would_repeat() -> None:
    assert loader_settings(data.DataLoader(streams.Whole()))["workers_repeat"] is True
    assert "workers_repeat" not in loader_settings(data.DataLoader(streams.Divided()))


@pytest.mark.parametrize("drop_last", [True, False])
def test_a_sampler_of_batches_says_whether_the_last_is_dropped(drop_last: bool) -> None:
    batches = data.BatchSampler(data.SequentialSampler(range(10)), batch_size=4, drop_last=drop_last)
    by_sampler = loader_settings(data.DataLoader(range(10), batch_sampler=batches))
    assert (by_sampler["dataloader_drop_last"], by_sampler["per_device_train_batch_size"]) == (drop_last, 4)
    assert by_sampler == loader_settings(data.DataLoader(range(10), batch_size=4, drop_last=drop_last))


def test_streams_of_packages_divide_themselves() -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"x": list(range(8))})
    stream = rows.to_iterable_dataset(num_shards=4).with_format("torch")
    assert not repeats_in_workers(stream)
    assert not repeats_in_workers(streams.Shuffled(stream))
    assert not repeats_in_workers(streams.Shuffled(rows.to_iterable_dataset()))
    assert repeats_in_workers(streams.Shuffled(rows)), "a stream over data that has no order of its own"


def drawn(dataset: Any, workers: int, batch_size: int = 4, epochs: int = 1, **options: Any) -> list[int]:
    loader = data.DataLoader(dataset, batch_size, num_workers=workers, **options)
    samples = DrawnSamples(dataset)
    for _ in range(epochs):
        iterator = iter(loader)
        for batch in iterator:
            samples.delivered(batch, iterator)
    return samples.repeated


def test_repeated_samples_are_counted_as_they_are_drawn() -> None:
    assert drawn(streams.Whole(), workers=0) == [0] * 7, "of the first 1, 2, 4 … 64"
    assert drawn(streams.Whole(), workers=0, epochs=2) == [0] * 7, "another epoch repeats them all"
    assert drawn(streams.Divided(), workers=2) == [0] * 7
    assert drawn(streams.Whole(), workers=2) == [0, 0, 0, 4, 8, 16, 32, 64], "both workers deliver the same batches"
    assert drawn(streams.Whole(), workers=2, persistent_workers=True, epochs=2)[:8] == [0, 0, 0, 4, 8, 16, 32, 64]


def test_samples_of_many_kinds_are_compared() -> None:
    def kinds(samples: list[Any]) -> Any:
        tensors = [sample.double() for sample in samples]
        return {"label": torch.zeros(len(samples)), "inputs": (torch.stack(tensors), ["text"])}

    assert drawn(streams.Whole(), workers=0, collate_fn=kinds) == [0] * 7
    assert drawn(streams.Whole(), workers=0, batch_size=100, collate_fn=lambda samples: [str(samples)]) == [0]
