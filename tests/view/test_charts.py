"""Plots: axes in real units, curves that stay, nothing drawn of what is unknown."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.live_run import history
from tuner_tui.runs.events.history import History, Series
from tuner_tui.ui.panels.plots import plots_rows
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import line_width, plain_text
from tuner_tui.view.charts import Plot, axis_end, axis_range, braille_curve, plot_rows


def loss(points: int) -> Plot:
    xs = tuple(float(x) for x in range(points))
    return Plot("loss", Series("loss", "", xs, tuple(1 + math.exp(-x / 60) for x in xs)), f.significant)


def texts(plot: Plot, width: int = 40, height: int = 8) -> list[str]:
    return [plain_text(row.line) for row in plot_rows(plot, width, height)]


@given(st.integers(1, 130), st.integers(1, 40), st.integers(0, 300))
def test_a_plot_never_outgrows_its_place(width: int, height: int, points: int) -> None:
    rows = plots_rows(history(points) if points > 1 else History(), None, width, height)
    assert len(rows) <= height
    assert all(line_width(row.line) <= width for row in rows)


def test_axes_carry_their_ends() -> None:
    shown = texts(loss(240))
    assert shown[0] == "loss  1.02"
    assert shown[1].startswith("     2.00┤")
    assert shown[-2].startswith("     1.00┤")
    assert shown[-1].split() == ["0", "150", "step", "300"]
    assert any(row.startswith("     1.60┤") for row in shown[2:-2]), "a label near the middle: two of five steps down"


def test_amounts_stand_on_zero() -> None:
    series = Series("throughput", "samples/s", (0.0, 1.0, 2.0), (198.0, 201.0, 200.0))
    assert texts(Plot("throughput", series, f.significant, from_zero=True))[-2].startswith("     0.00┤")


def test_what_is_drawn_stays_as_the_run_goes_on() -> None:
    early, late = texts(loss(210)), texts(loss(240))
    assert [row[:40] for row in early[1:-1]] != [row[:40] for row in late[1:-1]]
    assert [row[:30] for row in early[1:-1]] == [row[:30] for row in late[1:-1]]


def test_gaps_and_infinities_are_left_out() -> None:
    series = Series("loss", "", (0.0, 1.0, 2.0, 3.0), (2.0, None, float("inf"), 1.0))
    assert texts(Plot("loss", series, f.significant))[0] == "loss  1.00"


def test_too_few_points_say_so() -> None:
    assert texts(Plot("loss", Series("loss", ""), f.significant))[:2] == ["loss  –", "no points yet"]


def test_a_level_line_is_one_row_of_dots() -> None:
    rows = braille_curve([(0, 1.0), (10, 1.0)], (0, 10), (0.0, 2.0), 10, 4)
    assert sum(bool(row.strip()) for row in rows) == 1
    assert all(len(row) == 10 for row in rows)


@given(st.floats(0.001, 1e9))
def test_the_end_of_the_axis_holds_the_last_step(last: float) -> None:
    assert last <= axis_end(last, None) * (1 + 1e-9)
    assert axis_end(last, None) <= max(1.0, 2 * last) * (1 + 1e-9)


def test_the_axis_moves_seldom_and_ends_with_the_run() -> None:
    ends = [axis_end(float(step), 400) for step in range(1, 401)]
    assert sorted(set(ends)) == [1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 400]
    assert axis_end(450, 400) == 500, "a guess that was too small"


def test_the_scale_of_a_falling_loss_moves_seldom() -> None:
    values = loss(400).series.ys
    scales = {axis_range([y for y in values[: step + 1] if y is not None]) for step in range(20, 400)}
    assert len(scales) <= 5
