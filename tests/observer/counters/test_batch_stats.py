"""Measuring batches: shape, tokens and padding."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from tests.late_module import late_module
from tuner_tui.observer.site._tuner_observer.counters.batch_stats import (
    ALWAYS_COUNTED_MASKS,
    COUNT_INTERVAL_S,
    MAX_COUNTED_ELEMENTS,
    BatchLayout,
    IteratorStats,
    TrainingTotals,
)

torch = late_module("torch")


def measure(batch: Any) -> Any:
    return IteratorStats().count_tokens(BatchLayout(batch, torch.Tensor).measure(batch, 1.0))


def ids(rows: int = 4, columns: int = 6) -> Any:
    return torch.arange(rows * columns).reshape(rows, columns)


def test_shape_tokens_and_padding_of_many_kinds_of_batches() -> None:
    mask = torch.ones(4, 6, dtype=torch.long)
    mask[0, 3:] = 0
    assert measure({"input_ids": ids(), "attention_mask": mask}) == ((4, 6), 21, 3)
    numbered = torch.tensor([[1, 1, 2, 2, 3, 0]] * 4)
    assert measure({"input_ids": ids(), "attention_mask": numbered}) == ((4, 6), 20, 4)
    assert measure({"input_ids": ids(), "attention_mask": mask.bool()}) == ((4, 6), 21, 3)
    assert measure(({"input_ids": ids(), "attention_mask": mask}, torch.zeros(4))) == ((4, 6), 21, 3)
    assert measure(({"input_ids": ids()}, {"input_ids": ids()})) == ((4, 6), None, None)
    assert measure({"input_ids": ids(), "labels": ids()}) == ((4, 6), 24, None)
    assert measure({"input_ids": ids(1, 24), "seq_idx": ids(1, 24)}) == ((1, 24), 24, 0)
    assert measure({"pixel_values": torch.zeros(2, 3, 8, 8), "labels": torch.zeros(2)}) == ((2, 3, 8, 8), None, None)
    assert measure((ids(), mask, torch.zeros(4))) == ((4, 6), 21, 3)
    assert measure([ids(), ids()]) == ((4, 6), 24, None)
    assert measure((torch.zeros(5, 2), torch.zeros(5))) == ((5, 2), None, None)
    assert measure(torch.zeros(7, 2)) == ((7, 2), None, None)
    assert measure(["a", "b"]) == ((), None, None)
    assert measure(None) == ((), None, None)


def test_large_masks_are_extrapolated_from_some_rows() -> None:
    rows, columns = 64, 512
    assert rows * columns > 2 * MAX_COUNTED_ELEMENTS
    lengths = torch.arange(rows) * columns // rows  # sorted: the worst case for taking every k-th row
    mask = (torch.arange(columns)[None, :] < lengths[:, None]).long()
    batch = {"input_ids": torch.zeros_like(mask), "attention_mask": mask}
    layout = BatchLayout(batch, torch.Tensor)
    iterator = IteratorStats()
    counted = [iterator.count_tokens(layout.measure(batch, 1.0))[1] or 0 for _ in range(16)]
    assert len(set(counted)) > 1
    assert sum(counted) / len(counted) == pytest.approx(int(mask.sum()), rel=0.01)
    assert iterator.estimated


def test_of_frequent_batches_the_first_masks_are_counted_and_later_ones_sampled() -> None:
    iterator, layout = (
        IteratorStats(),
        BatchLayout({"input_ids": ids(), "attention_mask": ids().clamp(max=1)}, torch.Tensor),
    )
    taken, tokens = [], []
    for number in range(4000):
        lengths = torch.full((4, 1), 1 + number % 6)
        batch = {"input_ids": ids(), "attention_mask": (torch.arange(6)[None, :] < lengths).long()}
        measured = layout.measure(batch, number * 1e-3)
        taken.append(measured[1] is not None)
        tokens.append(iterator.count_tokens(measured)[1])
        if number == ALWAYS_COUNTED_MASKS - 1:
            assert all(taken)
            assert not iterator.estimated
    assert sum(taken) == pytest.approx(
        ALWAYS_COUNTED_MASKS + (4000 - ALWAYS_COUNTED_MASKS) * 1e-3 / COUNT_INTERVAL_S, abs=2
    )
    assert iterator.estimated
    assert sum(tokens) == pytest.approx(4000 * 4 * 3.5, rel=0.1)


def test_of_infrequent_batches_every_mask_is_counted() -> None:
    iterator, layout = (
        IteratorStats(),
        BatchLayout({"input_ids": ids(), "attention_mask": ids().clamp(max=1)}, torch.Tensor),
    )
    batch = {"input_ids": ids(), "attention_mask": ids().clamp(max=1)}
    measured = [iterator.count_tokens(layout.measure(batch, number * 2 * COUNT_INTERVAL_S)) for number in range(200)]
    assert set(measured) == {((4, 6), 23, 1)}
    assert not iterator.estimated


def test_captions_of_images_are_no_tokens_of_the_training() -> None:
    captioned = {"input_ids": ids(), "pixel_values": torch.zeros(4, 3, 2, 2)}
    assert measure(captioned)[1:] == (None, None)
    assert measure({**captioned, "labels": ids()})[1] == 24


def test_tokens_of_all_columns_of_a_sentence_pair() -> None:
    """As the collator of sentence-transformers names them."""
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    batch = {
        "anchor_input_ids": ids(2, 4),
        "anchor_attention_mask": torch.ones(2, 4),
        "positive_input_ids": ids(2, 3),
        "positive_attention_mask": mask,
        "label": torch.zeros(2),
    }
    assert measure(batch) == ((2, 4), 8 + 3, 3)
    assert measure({name: value for name, value in batch.items() if "mask" not in name}) == ((2, 4), 14, None)
    later = BatchLayout(batch, torch.Tensor, first=0)
    later.due_s = 2.0
    assert IteratorStats().count_tokens(later.measure(batch, 1.0)) == ((2, 4), 14, 0)


@pytest.mark.parametrize(
    ("batch_size", "batches", "samples"),
    [
        (4, ((8, 10), (8, 12), (2, 9)), 9),  # DPO: the chosen answers, then the rejected ones; one pair is left
        (4, ((4, 10), (4, 12), (3, 9)), 11),
        (4, ((6, 10), (7, 12)), 8),  # the rows of a graph are its nodes
        (None, ((8, 10), (3, 10)), 11),
    ],
)
def test_rows_that_a_collator_makes_of_a_sample_count_once(
    batch_size: int | None, batches: tuple[tuple[int, int], ...], samples: int
) -> None:
    iterator = IteratorStats()
    iterator.batch_size = batch_size
    for shape in batches:
        iterator.deliver((shape, None, None))
    assert iterator.samples == samples


def test_samples_are_those_that_the_sampler_drew() -> None:
    """Whatever a collator makes of them, such as the nodes of graphs; an IterableDataset has no numbers to draw."""
    iterator = IteratorStats()
    iterator.batch_size = 4
    for drawn in ([5, 1, 7, 2], [3, 4], [None] * 4):
        iterator.rows = deque([drawn])
        iterator.deliver(((9, 10), None, None))
    assert iterator.samples == 4 + 2 + 4


def test_samples_in_one_row_without_padding_are_counted() -> None:
    batch = {"input_ids": ids(1, 24), "cu_seqlens": torch.arange(5)}
    iterator = IteratorStats()
    iterator.batch_size = 4
    iterator.layout = BatchLayout(batch, torch.Tensor)
    iterator.deliver(iterator.layout.measure(batch, 1.0))
    assert (iterator.samples, iterator.tokens, iterator.padding) == (4, 24, 0)


def test_an_iterator_that_is_kept_for_all_epochs_begins_anew_in_each() -> None:
    iterator, totals = IteratorStats(), TrainingTotals()
    positions: list[tuple[int | None, int | None]] = []
    iterator.start_epoch(lambda: 1, 2, None)
    for _ in range(5):
        iterator.deliver(((4, 1), None, None))
        totals.add(iterator)
        iterator.clear()
        positions.append((totals.epoch, totals.fields()["epoch_batch"]))
    assert positions == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]


@pytest.mark.parametrize(
    ("lengths", "uneven"),
    [([10, 10, 10], False), ([10, 18], True), ([100, 101, 97], False), ([20, None, 21], False), ([40, 60, 80], True)],
)
def test_epochs_whose_lengths_differ(lengths: list[int | None], uneven: bool) -> None:
    totals = TrainingTotals()
    for length in lengths:
        iterator = IteratorStats()
        iterator.start_epoch(lambda: 1, length, None)
        for _ in range(length or 5):
            iterator.deliver(((4,), None, None))
        totals.add(iterator)
    assert totals.uneven is uneven


def test_two_loaders_that_are_read_together_are_not_uneven() -> None:
    totals = TrainingTotals()
    iterators = [IteratorStats(), IteratorStats()]
    for iterator, length in zip(iterators, (10, 20), strict=True):
        iterator.start_epoch(lambda: 1, length, None)
        iterator.deliver(((4,), None, None))
        totals.add(iterator)
    assert not totals.uneven


def test_a_loader_that_was_read_once_says_nothing_of_later_steps() -> None:
    totals, iterator = TrainingTotals(), IteratorStats()
    for _ in range(3):
        iterator.deliver(((8, 5), 40, None))
    totals.add(iterator)
    assert totals.forget_loader() == (8, 24)
    totals.count_without_loader(10)
    totals.set_rows(None)
    assert {name: totals.fields()[name] for name in ("samples", "tokens", "epoch_batch")} == {
        "samples": 0, "tokens": None, "epoch_batch": None,
    }  # fmt: skip
    totals.set_rows(24)
    totals.count_without_loader(12)
    assert (totals.fields()["micro_steps"], totals.fields()["samples"]) == (12, 288)
