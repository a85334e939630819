"""The range of a forecast holds the end of most curves, whatever their shape, and nothing is said too early."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from tuner_tui.runs.events.loss_forecast import forecast_loss

END = 1000
SHAPES: dict[str, Callable[[float], float]] = {
    "power law": lambda t: 1.2 + 3 * (1000 * t) ** -0.5,
    "decay": lambda t: 0.4 + 2 * math.exp(-t / 0.2),
    "linear learning rate": lambda t: 1.5 + 2 * math.exp(-t / 0.1) + 0.2 * (1 - t),
    "flat": lambda t: 2.1,
    "logarithm": lambda t: 3.0 - 0.2 * math.log(1000 * t),
}


def curve(shape: str, seed: int, noise: float = 0.05) -> list[float]:
    draw = random.Random(seed)
    return [SHAPES[shape](step / END) * (1 + draw.gauss(0, noise)) for step in range(1, END + 1)]


@pytest.mark.parametrize("share", [0.34, 0.5, 0.8])
def test_the_end_falls_in_the_range_of_most_curves(share: float) -> None:
    inside = total = 0
    for shape in SHAPES:
        for seed in range(8):
            seen = range(1, int(END * share) + 1)
            forecast = forecast_loss(seen, curve(shape, seed)[: len(seen)], END)
            assert forecast is not None
            assert forecast.low < forecast.value < forecast.high
            inside += forecast.low <= SHAPES[shape](1.0) <= forecast.high
            total += 1
    assert inside >= 0.9 * total


def test_there_is_none_before_a_third_of_the_run_nor_from_few_points() -> None:
    ys = curve("decay", 0)
    assert forecast_loss(range(1, 300), ys[:299], END) is None
    assert forecast_loss((300, 400, 500), (2.0, 1.9, 1.8), END) is None
    assert forecast_loss(range(1, END + 1), ys, END) is None, "the run has ended"


def test_there_is_none_whose_range_is_far_wider_than_what_was_reached() -> None:
    draw = random.Random(0)
    ys = [math.exp(-step / 60) * (1 + draw.gauss(0, 0.05)) + 1e-4 for step in range(1, 401)]
    assert forecast_loss(range(1, 401), ys, END) is None
    near = forecast_loss(range(1, 401), [y + 0.05 for y in ys], END)
    assert near is not None
    assert near.high / near.low < 10


def test_a_spike_and_a_gap_hardly_move_it_and_a_loss_below_zero_has_one_too() -> None:
    ys: list[float | None] = [*curve("decay", 1)[:500]]
    plain = forecast_loss(range(1, 501), ys, END)
    ys[450], ys[460] = 90.0, None
    spiked = forecast_loss(range(1, 501), ys, END)
    assert plain is not None
    assert spiked is not None
    assert spiked.value == pytest.approx(plain.value, rel=0.02)
    reward = forecast_loss(range(1, 501), [-y for y in curve("decay", 1)[:500]], END)
    assert reward is not None
    assert reward.low < -0.4 < reward.high
