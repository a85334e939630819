"""The peaks at several batches follow from the events of two."""

from __future__ import annotations

import pytest

from tests.late_module import late_module
from tuner_tui.trainer.memory_tracer.caching_allocator import FREED, Event
from tuner_tui.trainer.memory_tracer.training_events import BatchEvents, LiveBytes

torch, transformers = late_module("torch"), late_module("transformers")
tracer = late_module("tuner_tui.trainer.memory_tracer.tracer")
BATCHES = (2, 8, 32, 128)
WEIGHTS, COPY, GRADIENT = 100, 300, 1000


def step(batch: int) -> BatchEvents:
    """A copy of 300 bytes with activations of 10 a sample, and after these a gradient of 1,000 with 2 a sample."""
    activations, rest = 10 * batch, 2 * batch
    passes: list[Event] = [(0, COPY), (1, activations), (0, FREED), (1, FREED), (2, GRADIENT), (3, rest), (3, FREED)]
    live = [
        LiveBytes(WEIGHTS),
        LiveBytes(WEIGHTS + COPY, 0, COPY),
        LiveBytes(WEIGHTS + COPY + activations, 0, COPY),
        LiveBytes(WEIGHTS + GRADIENT, GRADIENT),
        LiveBytes(WEIGHTS + GRADIENT + rest, GRADIENT),
    ]
    return BatchEvents(passes, live=live)


def other_step(batch: int) -> BatchEvents:
    """The same, with one tensor more from 8 samples on."""
    result = step(batch)
    if batch < 8:
        return result
    return BatchEvents([*result.passes, (4, 5000), (4, FREED)], live=[*result.live, LiveBytes(6000 + batch)])


def test_two_batches_are_traced_and_the_others_lie_on_the_lines_of_their_tensors() -> None:
    """The highest of 400 + 10 a sample and 1100 + 2 a sample: 1104, 1116, 1164, then 1680 with the copy."""
    traced = tracer.trace_batches(BATCHES, step)
    assert sorted(traced) == [2, 8]
    result = [
        (peak["batch"], peak["total"], peak["gradients"], peak["copies"]) for peak in tracer.peaks(traced, BATCHES)
    ]
    assert result == [(2, 1104, 1000, 0), (8, 1116, 1000, 0), (32, 1164, 1000, 0), (128, 1680, 0, 300)]


def test_batches_that_differ_in_the_order_of_events_are_all_traced() -> None:
    traced = tracer.trace_batches(BATCHES, other_step)
    assert sorted(traced) == [2, 8, 32, 128]
    assert [peak["total"] for peak in tracer.peaks(traced, BATCHES)] == [1104, 6008, 6032, 6128]


@pytest.mark.parametrize("batches", [(2, 8), (4, 128)])
def test_two_batches_need_no_lines(batches: tuple[int, int]) -> None:
    asked: list[int] = []

    def trace(batch: int) -> BatchEvents:
        asked.append(batch)
        return other_step(batch)

    assert (
        [peak["batch"] for peak in tracer.peaks(tracer.trace_batches(batches, trace), batches)] == asked == [*batches]
    )
