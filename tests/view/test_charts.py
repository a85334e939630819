"""Bars, blocks and curves: axes in real units, curves that stay, nothing drawn of what is unknown."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes.live_run import history
from tuner_tui.runs.events.progress import History, Series
from tuner_tui.ui.terminal.cell_writer import to_ascii
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import FILLED, line_width, plain_text
from tuner_tui.view.charts import (
    Axes,
    BarPart,
    Curve,
    Mark,
    area_lines,
    axis_end,
    axis_labels,
    axis_range,
    blocks,
    curve_rows,
    gauge,
    legend,
    part_percents,
    quantise,
    stacked_bar,
)
from tuner_tui.view.live_rows import plots_rows


def loss(points: int) -> Curve:
    xs = tuple(float(x) for x in range(points))
    return Curve("1.02", xs, tuple(1 + math.exp(-x / 60) for x in xs))


def texts(
    *curves: Curve, width: int = 40, height: int = 8, from_zero: bool = False, end: float | None = None
) -> list[str]:
    axes = Axes(f.significant, end, from_zero=from_zero)
    rows = curve_rows(legend("loss", curves, width), curves, axes, width, height)
    return [plain_text(row).rstrip() for row in rows]


def test_unknown_leaves_a_gap_and_is_not_zero() -> None:
    assert blocks([None, 0.0, 100.0], 100) == " ▁▇"
    assert [quantise(value, 100, 8) for value in (None, 0.001, 250)] == [0, 1, 8]


@given(st.floats(0, 1), st.integers(0, 80))
def test_a_gauge_takes_exactly_its_width(part: float, width: int) -> None:
    assert len(plain_text(gauge(part, width, "good"))) == width


def test_a_gauge_is_full_at_one_and_empty_where_unknown() -> None:
    assert [plain_text(gauge(part, 5, "good")) for part in (1.0, 0.5, None)] == ["━━━━━", "━━╸──", "─────"]


@given(st.lists(st.floats(0, 2), max_size=6), st.integers(0, 60))
def test_the_parts_of_a_stacked_bar_fill_their_share(shares: list[float], width: int) -> None:
    bar, _ = stacked_bar([BarPart("part", share, "fill-curve") for share in shares], width)
    assert line_width(bar) == width
    filled = sum(len(text if style in FILLED else text.rstrip()) for text, style in bar)
    assert abs(filled - min(width, sum(shares) * width)) <= max(0.5, len(shares)) + 1e-6


def test_parts_are_named_as_far_as_there_is_room_and_told_apart_without_colour() -> None:
    parts = [
        BarPart("data", 0.3, "fill-warn"),
        BarPart("compute", 0.6, "fill-curve"),
        BarPart("saving", 0.01, "fill-dim"),
    ]
    parts = [*parts, BarPart("cached", 0.08, "fill-gauge")]
    bar, names = stacked_bar(parts, 40)
    assert plain_text(bar) == "▏data 30 %  ▏compute 60 %            ▏  "
    assert [plain_text(name) for name in names] == ["  saving 1 %", "  cached 8 %"], "in the order of the parts"
    assert [name[0].style for name in names] == [span.style for span in bar[-2:]]
    assert to_ascii(plain_text(bar))[-4:] == " |  "
    bar, names = stacked_bar(parts, 14)
    assert plain_text(bar) == "▏   ▏60 %     "
    assert [plain_text(name)[:6] for name in names] == ["  data", "  comp", "  savi"], "no cell, no name"


def test_the_names_of_parts_stand_in_what_is_free_if_there_is_room() -> None:
    parts = [BarPart("context", 0.05, "fill-strong"), BarPart("free", 0.95, "dim")]
    assert plain_text(stacked_bar(parts, 40)[0]) == "▏ ▏free 95 %     context 5 % ───────────"
    assert stacked_bar(parts, 40)[1] == []
    assert [plain_text(name) for name in stacked_bar(parts, 24)[1]] == ["  context 5 %"]


def test_the_heights_of_one_row_tell_rest_half_and_full_load_apart() -> None:
    levels = [0.0, 30.0, 60.0, 85.0, 100.0]
    rows = [plain_text(area_lines((level, level), 100.0, 1, "good")[0]) for level in levels]
    assert rows == ["⣀", "⣀", "⣤", "⣶", "⣿"]
    assert [to_ascii(row[0]) for row in rows] == ["_", "_", "=", "#", "#"]


@given(st.integers(1, 130), st.integers(1, 40), st.integers(0, 300))
def test_plots_are_never_wider_than_their_place(width: int, height: int, points: int) -> None:
    rows = plots_rows(history(points) if points > 1 else History(), None, width, height)
    assert all(line_width(row) <= width for row in rows)


def test_every_metric_that_the_script_logs_has_a_chart_and_its_value_at_a_step() -> None:
    steps = tuple(float(step) for step in range(0, 100, 10))
    margins = Series("rewards/margins", "", steps, tuple(step / 100 for step in steps))
    logged = replace(history(), logged=(margins, replace(margins, name="rewards/chosen")))
    rows = [plain_text(row) for row in plots_rows(logged, None, 80, 12)]
    assert len(rows) > 12, "the rest is scrolled to"
    assert any("rewards/margins  0.90" in row for row in rows)
    shown = "".join(plain_text(row) for row in plots_rows(logged, None, 120, 40, loss=False, at=45.0))
    assert "rewards/margins  0.40 at step 40" in shown
    assert "loss" in shown, "though it is drawn elsewhere"


def test_an_area_starts_at_zero_and_is_the_brighter_the_higher_it_is() -> None:
    busy = (100.0, 50.0, None, None, 0.0, 0.0, 25.0, None)
    assert plain_text(area_lines(busy, 100, 1, "good")[0]) == "⣧ ⣀⡀"
    assert [plain_text(row) for row in area_lines(busy, 100, 2, "good")] == ["⡇   ", "⣿ ⣀⡄"]
    styles = [row[0].style for row in area_lines((100.0, 100.0), 100, 4, "good")]
    assert styles == ["good", "high-good", "mid-good", "low-good"]


def test_axes_carry_their_ends() -> None:
    shown = texts(loss(240))
    assert shown[0] == "loss  1.02"
    assert shown[1].startswith("  2.0┤")
    assert shown[-2].startswith("  1.0┤")
    assert shown[-1].replace("─", " ").split() == ["steps", "0", "150", "300"]
    assert any(row.startswith("  1.5┤") for row in shown[2:-2]), "the middle"


def test_a_tall_chart_has_more_labels_with_equal_digits() -> None:
    rows = [row.split("┤")[0].strip() for row in texts(loss(240), height=18) if "┤" in row]
    assert rows == ["2.0", "1.8", "1.6", "1.4", "1.2", "1.0"]


def test_labels_of_an_axis_have_one_prefix() -> None:
    assert axis_labels([0.0, 30_000.0, 60_000.0], f.significant) == ["0", "30k", "60k"]
    assert axis_labels([800.0, 1_000.0, 1_200.0], f.significant) == ["0.8k", "1.0k", "1.2k"]
    assert axis_labels([0.0, 4e-5], f.exponent) == ["0", "4.0e-05"]


def test_amounts_stand_on_zero() -> None:
    assert texts(Curve("", (0.0, 1.0, 2.0), (198.0, 201.0, 200.0)), from_zero=True)[-2].startswith("    0┤")


def test_what_is_drawn_stays_as_the_run_goes_on() -> None:
    early, late = texts(loss(210)), texts(loss(240))
    assert [row[:40] for row in early[1:-1]] != [row[:40] for row in late[1:-1]]
    assert [row[:30] for row in early[1:-1]] == [row[:30] for row in late[1:-1]]


def test_gaps_and_infinities_are_left_out_and_too_few_points_say_so() -> None:
    assert "no points yet" not in texts(Curve("", (0.0, 1.0, 2.0, 3.0), (2.0, None, float("inf"), 1.0)))
    assert texts(Curve("–", (0.0, 1.0), (None, None)))[:2] == ["loss  –", "no points yet"]
    assert sum(row.count("●") for row in texts(Curve("", (0.0, 5.0, 9.0, 20.0), (2.0, 1.0, None, 1.5)))) == 3


def test_a_level_line_is_one_row_of_dots() -> None:
    rows = texts(Curve("", (0.0, 5.0, 6.0, 8.0, 10.0), (1.0,) * 5))[1:-1]
    assert sum(any("⠁" <= cell <= "⣿" for cell in row) for row in rows) == 1


def test_a_text_of_a_chart_is_written_above_the_signs_below_it() -> None:
    marks = (Mark(10.0, 1.0, "0.28 – 0.37", "curve"), *(Mark(x, 1.3, "◆", "second") for x in (8.0, 9.0)))
    curve = Curve("", tuple(map(float, range(11))), tuple(2.0 - x / 10 for x in range(11)))
    rows = [plain_text(row) for row in curve_rows((), (curve,), Axes(f.significant), 40, 8, marks)]
    signs, text = (next(n for n, row in enumerate(rows) if sign in row) for sign in ("◆", "0.28 – 0.37"))
    assert (rows[signs].count("◆"), text) == (2, signs - 1)


def test_two_curves_are_told_apart_without_colour() -> None:
    dotted = Curve("r001", (0.0, 100.0), (2.0, 2.0), "dim", "dotted")
    through = Curve("r002", (0.0, 25.0, 50.0, 75.0, 100.0), (1.0,) * 5)
    heading, *rows = texts(dotted, through, width=60)
    assert heading == "loss   ⠂⠂ r001   ⠒⠒ r002"
    above, below = (row[6:].strip() for row in (rows[0], rows[-2]))
    assert set(above) <= {"⠁", "⠂", "⠄", "⡀"}
    assert not set(below) & set(above)


@given(st.floats(0.001, 1e9))
def test_the_end_of_the_axis_holds_the_last_step(last: float) -> None:
    assert last <= axis_end(last, None) * (1 + 1e-9)
    assert axis_end(last, None) <= max(1.0, 2 * last) * (1 + 1e-9)


def test_axes_move_seldom_and_end_with_the_run() -> None:
    assert {axis_end(float(step), 400) for step in range(51, 401)} == {400}
    assert [axis_end(step, 400) for step in (5.0, 45.0, 50.0)] == [5, 50, 50], "the beginning has all the width"
    assert len({axis_end(float(step), None) for step in range(1, 401)}) == 12
    assert axis_end(450, 400) == 500, "a guess that was too small"
    values = [1 + math.exp(-x / 60) for x in range(400)]
    assert len({axis_range(values[: step + 1]) for step in range(20, 400)}) <= 8


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
@example([5e-324])
@example([0.0, 5e-324])
@example([-5e-324, 0.0])
def test_a_scale_holds_every_value(ys: list[float]) -> None:
    low, high = axis_range(ys)
    slack = 1e-9 * max(1.0, abs(low), abs(high))
    assert low - slack <= min(ys) <= max(ys) <= high + slack
    assert low < high


@given(st.lists(st.floats(0.006, 1.0), min_size=1, max_size=8))
def test_the_percentages_of_a_bar_add_up(sizes: list[float]) -> None:
    shares = [size / sum(sizes) for size in sizes]
    percents = part_percents([BarPart("part", share, "fill-curve") for share in shares])
    rounded_up = sum(share < 0.01 for share in shares)  # a part that is there is never 0 %
    if not any("<" in text for text in percents):
        assert 100 <= sum(int(text.removesuffix(" %")) for text in percents) <= 100 + rounded_up
    assert all(abs(float(text.strip("< %")) - 100 * share) <= 1 for text, share in zip(percents, shares, strict=True))


def test_the_amber_part_has_the_percentage_of_its_finding() -> None:
    thirds = [BarPart("a", 0.334, "fill-curve"), BarPart("b", 0.334, "fill-gauge"), BarPart("data", 0.332, "fill-warn")]
    assert part_percents(thirds) == ["34 %", "33 %", "33 %"]
    halves = [BarPart("a", 0.146, "fill-curve"), BarPart("b", 0.598, "fill-gauge"), BarPart("data", 0.256, "fill-warn")]
    assert part_percents(halves) == ["14 %", "60 %", "26 %"]


def test_of_what_stays_the_same_the_value_stands_below_the_plots_that_change() -> None:
    steps = tuple(float(step) for step in range(1, 21))
    of_run = History(
        grad_norm=Series("gradient norm", "", steps, tuple(1 + step / 20 for step in steps)),
        learning_rate=Series("learning rate", "", steps, (1e-3,) * 20),
        memory_bytes=Series("peak memory", "B", steps, tuple(4e8 + step for step in steps)),
    )
    rows = plots_rows(of_run, None, 110, 10, loss=False)
    assert "⡇" not in plain_text(rows[-1])
    assert plain_text(rows[-1]) == "unchanged: learning rate 1.0e-03 · peak memory 381 MiB"
    assert [plain_text(row).count("│") for row in rows[2:4]] == [1, 1], "one plot has the whole width"
    begun = replace(of_run, memory_bytes=Series("peak memory", "B", steps[:4], (4e8,) * 4), grad_norm=Series("", ""))
    assert "peak memory" in plain_text(plots_rows(begun, None, 110, 10, loss=False)[0]), "too few to say so"


def test_the_first_metrics_of_the_evaluations_have_charts_before_the_figures_of_the_training() -> None:
    steps = (10.0, 20.0, 30.0)
    results = tuple(Series(f"eval metric {number}", "", steps, (0.1, 0.2, 0.4)) for number in range(3))
    growing = Series("gradient norm", "", steps, (1.0, 2.0, 3.0))
    rows = plots_rows(History(results=results, grad_norm=growing), None, 150, 8, loss=False)
    heading = plain_text(rows[0])
    assert [heading.index(name) for name in ("eval metric 0", "eval metric 1", "gradient norm")] == sorted(
        heading.index(name) for name in ("eval metric 0", "eval metric 1", "gradient norm")
    )
    assert "eval metric 2" in heading
