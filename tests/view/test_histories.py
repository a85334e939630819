"""Bars and blocks that are quantised, curves over the run."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from tuner_tui.runs.events.history import Series
from tuner_tui.view.cells import plain_text
from tuner_tui.view.charts import axis_range, blocks, gauge, quantise, run_curve, tall_blocks


def test_unknown_leaves_a_gap_and_is_not_zero() -> None:
    assert blocks([None, 0.0, 100.0], 100) == " ▁▇"


@given(st.floats(0, 1), st.integers(0, 80))
def test_a_gauge_takes_exactly_its_width(part: float, width: int) -> None:
    assert len(plain_text(gauge(part, width, "good"))) == width


def test_a_gauge_is_full_at_one_and_empty_where_unknown() -> None:
    assert plain_text(gauge(1.0, 5, "good")) == "━━━━━"
    assert plain_text(gauge(None, 5, "good")) == "─────"
    assert plain_text(gauge(0.5, 5, "good")) == "━━╸──"


def test_a_little_is_more_than_nothing_and_too_much_is_full() -> None:
    assert quantise(0.001, 100, 8) == 1
    assert quantise(250, 100, 8) == 8
    assert quantise(None, 100, 8) == 0


def test_a_tall_chart_stands_on_its_ground() -> None:
    assert tall_blocks((100.0, 50.0, None), 100, 2) == ("▇  ", "██ ")


def test_a_curve_ends_with_the_run_and_fills_from_the_left() -> None:
    part = Series("loss", "", tuple(float(x) for x in range(61)), tuple(4 - x / 60 for x in range(61)))
    curve = run_curve(part, 100, 20)
    assert curve[0] == "█"
    assert set(curve[13:]) == {" "}


def test_a_curve_of_few_steps_is_drawn_wide() -> None:
    few = Series("loss", "", tuple(float(x) for x in range(61)), tuple(4 - x / 60 for x in range(61)))
    assert len(run_curve(few, 9000, 20).rstrip()) == 13


def test_a_curve_only_adds_as_the_run_goes_on() -> None:
    def curve(steps: int) -> str:
        xs = tuple(float(x) for x in range(steps))
        return run_curve(Series("loss", "", xs, tuple(2 + math.sin(x / 3) for x in xs)), 1000, 50)

    early, late = curve(540), curve(580)
    assert early[:24] == late[:24]


def test_without_a_total_the_span_doubles_now_and_then() -> None:
    series = Series("loss", "", (0.0, 10.0, 20.0), (3.0, 2.0, 1.0))
    assert run_curve(series, None, 32).rstrip() == run_curve(series, 32, 32).rstrip()


def test_nothing_known_is_blank() -> None:
    assert run_curve(Series("loss", ""), 100, 10) == " " * 10
    assert run_curve(Series("loss", "", (0.0,), (float("nan"),)), 100, 4) == "    "


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
@example([5e-324])
@example([0.0, 5e-324])
@example([-5e-324, 0.0])
def test_a_scale_holds_every_value(ys: list[float]) -> None:
    low, high = axis_range(ys)
    slack = 1e-9 * max(1.0, abs(low), abs(high))
    assert low - slack <= min(ys) <= max(ys) <= high + slack
    assert low < high
