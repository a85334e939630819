"""Peaks are measured at as few batches as tell all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tuner_tui.trainer.memory_tracer.tracer import convex_peaks


def highest(*lines: tuple[int, int]) -> Callable[[int], int]:
    """The highest of straight lines, each a base and a slope."""
    return lambda batch: max(base + slope * batch for base, slope in lines)


@pytest.mark.parametrize(
    ("batches", "peak", "measured"),
    [
        ((2, 8, 32, 128), highest((1000, 10)), [2, 8, 128]),
        ((2, 8, 32, 128), highest((3000, 0), (1000, 100)), [2, 8, 32, 128]),
        ((2, 8, 32, 128), highest((0, 10), (-100_000, 900)), [2, 8, 32, 128]),
        ((2, 8), highest((3000, 0), (1000, 100)), [2, 8]),
    ],
)
def test_a_straight_line_needs_no_further_batch(
    batches: Sequence[int], peak: Callable[[int], int], measured: list[int]
) -> None:
    asked: list[int] = []

    def measure(batch: int) -> dict[str, Any]:
        asked.append(batch)
        return {"batch": batch, "total": peak(batch)}

    found = convex_peaks(batches, measure)
    assert [one["batch"] for one in found] == sorted(asked) == measured
    assert [one["total"] for one in found] == [peak(batch) for batch in measured]
