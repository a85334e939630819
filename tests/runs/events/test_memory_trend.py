"""Memory retained from step to step shows in the minima, in constant memory."""

from __future__ import annotations

import random
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tuner_tui.runs.events.run_state import MAX_WINDOWS, NO_MINIMA, MemoryGrowth, WindowMinima, find_growth, with_value

MB = 1_000_000


def minima_of(points: Iterable[tuple[int, int]]) -> WindowMinima:
    lows = NO_MINIMA
    for step, value in points:
        lows = with_value(lows, step, value)
    return lows


def test_a_steady_rise_is_measured_whatever_goes_up_and_down_above_it() -> None:
    draw = random.Random(1)
    kept = [(step, 500 * MB + 2 * MB * step + draw.choice((0, 40 * MB))) for step in range(1, 900)]
    growth = find_growth(minima_of(kept), 7)
    assert growth is not None
    assert 1.8 * MB < growth.bytes_a_step < 2.2 * MB
    assert growth.total_bytes > 1500 * MB


def test_in_numbers() -> None:
    assert find_growth(WindowMinima(10, (1, 5, 9, 13, 17)), 4) == MemoryGrowth(0.4, 12, 30, 5)
    assert find_growth(WindowMinima(10, (1, 5, 9, 13, 17)), 5) is None
    assert find_growth(WindowMinima(10, (99, 5, None, 13, 17)), 3) == MemoryGrowth(0.4, 12, 30, 5)


def test_growth_may_begin_in_the_first_half_of_the_run() -> None:
    assert find_growth(WindowMinima(10, (9, 5, 5, 9, 13, 17)), 4) == MemoryGrowth(0.4, 12, 30, 5)
    assert find_growth(WindowMinima(10, (9, *[5] * 6, 9, 13, 17)), 4) is None


def test_what_fills_up_and_what_falls_back_is_no_growth() -> None:
    cache = [(step, round(1000 * MB * (1 - 0.99**step))) for step in range(1, 900)]
    assert find_growth(minima_of(cache), 7) is None
    emptied = [(step, 500 * MB + 2 * MB * (step % 300)) for step in range(1, 900)]
    assert find_growth(minima_of(emptied), 7) is None
    assert find_growth(minima_of((step, 500 * MB) for step in range(1, 900)), 7) is None


def test_longer_and_longer_batches_are_no_growth() -> None:
    """The peaks of a shuffled dataset rise with every record; what lies between the steps does not."""
    draw = random.Random(2)
    growth = [find_growth(minima_of((step, 500 * MB + draw.randrange(300) * MB) for step in range(1, 2000)), 7)
             for _ in range(200)]  # fmt: skip
    assert growth == [None] * 200


@given(st.lists(st.tuples(st.integers(-5, 10**30), st.none() | st.integers(0, 10**12)), max_size=60))
def test_any_order_of_any_steps_stays_small_and_holds_the_lowest(points: list[tuple[int, int | None]]) -> None:
    lows = NO_MINIMA
    for step, value in points:
        lows = with_value(lows, step, value)
    assert len(lows.values) <= MAX_WINDOWS
    measured = [value for step, value in points if value is not None and step >= 0]
    assert min((value for value in lows.values if value is not None), default=None) == min(measured, default=None)
    find_growth(lows, 7)
