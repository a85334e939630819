"""Histories: columns that stay where they are, bars and blocks that are quantised, curves over the run."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from tests.fakes.live_run import START_S, samples
from tuner_tui.runs.events.history import Series
from tuner_tui.ui.drawing.charts import axis_range, bar, blocks, quantise, run_curve, tall_blocks
from tuner_tui.ui.drawing.ring_history import BUCKET_S, ring_columns, samples_within


def test_a_moment_keeps_its_column_as_time_goes_on() -> None:
    moments = [(START_S + second, float(second % 100)) for second in range(60)]
    early = ring_columns(moments[:40], START_S + 39, 20)
    late = ring_columns(moments, START_S + 59, 20)
    changed = [column for column in range(20) if early[column] != late[column]]
    assert len(changed) <= 20 / BUCKET_S + 1
    assert sum(value is not None for value in late) == 12


def test_the_column_after_the_newest_is_the_gap() -> None:
    moments = [(START_S + second, 50.0) for second in range(1000)]
    columns = ring_columns(moments, START_S + 999, 20)
    gap = (int((START_S + 999) // BUCKET_S) + 1) % 20
    assert [column for column, value in enumerate(columns) if value is None] == [gap]


def test_a_tick_within_a_bucket_changes_at_most_one_column() -> None:
    before = ring_columns([(START_S, 10.0)], START_S, 20)
    after = ring_columns([(START_S, 10.0), (START_S + 1, 90.0)], START_S + 1, 20)
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_unknown_leaves_a_gap_and_is_not_zero() -> None:
    assert blocks([None, 0.0, 100.0], 100) == " ▁█"
    assert ring_columns([(START_S, None)], START_S, 8) == [None] * 8


@given(st.floats(0, 1), st.integers(0, 80))
def test_a_bar_takes_exactly_its_width(part: float, width: int) -> None:
    assert len(bar(part, width)) == width


def test_a_bar_is_full_at_one_and_empty_where_unknown() -> None:
    assert bar(1.0, 6) == "━━━━━│"
    assert bar(None, 6) == "     │"
    assert bar(0.5, 6) == "━━╸  │"


def test_a_little_is_more_than_nothing_and_too_much_is_full() -> None:
    assert quantise(0.001, 100, 8) == 1
    assert quantise(250, 100, 8) == 8
    assert quantise(None, 100, 8) == 0


def test_a_tall_chart_stands_on_its_ground() -> None:
    assert tall_blocks([100.0, 50.0, None], 100, 2) == ["█  ", "██ "]


def test_recent_samples_are_found_by_their_age() -> None:
    recent = samples(100, gpus=0, cores=1)
    assert [sample.time_s for sample in samples_within(recent, START_S, 2)] == [START_S - 2, START_S - 1, START_S]


def test_a_curve_spans_the_whole_run_and_fills_from_the_left() -> None:
    half = Series("loss", "", tuple(float(x) for x in range(51)), tuple(4 - x / 50 for x in range(51)))
    curve = run_curve(half, 100, 20)
    assert curve[0] == "█"
    assert set(curve[11:]) == {" "}


def test_a_curve_only_adds_as_the_run_goes_on() -> None:
    def curve(steps: int) -> str:
        xs = tuple(float(x) for x in range(steps))
        return run_curve(Series("loss", "", xs, tuple(2 + math.sin(x / 3) for x in xs)), 1000, 50)

    early, late = curve(500), curve(540)
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
