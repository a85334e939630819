"""The loss as a chart: what is marked, what is hidden, and an axis that stays."""

from __future__ import annotations

import math

from tuner_tui.runs.events.progress import Series
from tuner_tui.runs.read.run_context import EarlierLoss
from tuner_tui.view.cells import line_width, plain_text
from tuner_tui.view.loss_chart import LossScene, loss_drawing, loss_range, loss_rows, smooth

PLANNED = 900


def losses(points: int, changes: dict[int, float | None] | None = None) -> Series:
    xs = tuple(float(step) for step in range(1, points + 1))
    ys = tuple((changes or {}).get(int(x), 1.5 + 3 * math.exp(-x / 60) + 0.05 * math.sin(7 * x)) for x in xs)
    return Series("loss", "", xs, ys)


def scene(points: int = 400, changes: dict[int, float | None] | None = None) -> LossScene:
    return LossScene(losses(points, changes), Series("eval loss", "", (100.0, 200.0), (2.2, 1.7)), PLANNED, live=True)


def texts(shown: LossScene, width: int = 80, height: int = 14) -> list[str]:
    rows = loss_rows(shown, width, height)
    assert len(rows) == height
    assert all(line_width(row) <= width for row in rows)
    return [plain_text(row).rstrip() for row in rows]


def test_the_heading_names_the_signs_and_the_axis_ends_with_the_plan() -> None:
    heading, *body, foot = texts(
        scene()._replace(newest=1.5123, earlier=EarlierLoss("r007", Series("loss", "", (1.0, 800.0), (4.0, 1.4))))
    )
    assert heading == "loss 1.5123 ⠐⠂   ⠒⠒ smoothed 1.50   ◆ best eval 1.7000 at step 200   ⠂⠂ r007"
    assert foot.replace("─", " ").split() == ["steps", "0", "450", "900"]
    assert [sum(row.count(sign) for row in body) for sign in "◆◇"] == [1, 1], "the best one and the other"


def test_an_earlier_run_above_the_axis_is_left_out_instead_of_lying_flat_at_its_edge() -> None:
    resumed = LossScene(Series("loss", "", (300.0, 350.0, 400.0), (0.32, 0.31, 0.3)), Series("eval loss", ""), 400)
    ghost = Series("loss", "", tuple(float(step) for step in range(1, 301)), (2.0,) * 300)
    assert texts(resumed._replace(earlier=EarlierLoss("r001", ghost)))[1].split("┤")[1][:40].strip("⠀ ") == ""


def test_an_earlier_run_is_drawn_as_far_as_a_young_one_and_left_out_below_its_axis_instead_of_lying_flat() -> None:
    young = LossScene(Series("loss", "", (10.0, 20.0, 30.0), (6.9, 6.3, 5.6)), Series("eval loss", ""), 400)
    steps = tuple(float(step) for step in range(2, 401, 2))
    past = Series("loss", "", steps, tuple(2 + 4 * math.exp(-step / 40) for step in steps))
    body, bare = texts(young._replace(earlier=EarlierLoss("r001", past)))[1:], texts(young)[1:]
    assert [row[40:] for row in body] == [row[40:] for row in bare]
    assert body != bare, "the part in range is drawn"
    assert bare[-1].endswith(" 30 of 400")


def test_a_resumed_run_goes_on_from_the_curve_that_it_continues_on_one_axis() -> None:
    steps = tuple(float(step) for step in range(10, 1000, 10))
    ys = tuple(1 + 3 * math.exp(-step / 300) for step in steps)
    whole = LossScene(Series("loss", "", steps, ys), Series("eval loss", ""), 1000)
    resumed = whole._replace(
        loss=Series("loss", "", steps[50:], ys[50:]),
        earlier=EarlierLoss("r001", Series("loss", "", steps[:70], ys[:70]), continued=True),
    )
    heading, *body, _ = texts(resumed)
    assert heading.endswith("⠂⠂ r001 until resumed ▸")
    assert sum("▸" in row for row in body) == 1
    assert [row[:10] for row in body] == [row[:10] for row in texts(whole)[1:-1]]


def test_a_forecast_has_a_range_and_begins_with_a_third_of_the_run() -> None:
    assert not any("–" in row for row in texts(scene(200)))
    label = next(row for row in texts(scene()) if "–" in row)
    low, _, high = label.split()[-3:]
    assert float(low) < 1.5 < float(high)
    assert not any("–" in row for row in texts(scene()._replace(live=False)))


def test_a_wide_forecast_does_not_flatten_the_curve() -> None:
    steps = tuple(float(step) for step in range(10, 460, 10))
    ys = tuple(6.134 - step / 450 * 0.016 + 0.003 * math.sin(7 * step) for step in steps)
    level = LossScene(Series("loss", "", steps, ys), Series("eval loss", ""), 900, live=True)
    rows = texts(level)[1:-1]
    ends = [float(row.split("┤")[0]) for row in rows if "┤" in row]
    assert ends[0] - ends[-1] <= 3 * (max(ys) - min(ys))
    assert sum(any("⠀" < sign <= "⣿" for sign in row[10:45]) for row in rows) >= 4, "rows of what is measured"
    assert sum(any("⠀" < sign <= "⣿" for sign in row[-20:]) for row in rows) >= 1, "the cone is cut, not left out"
    label = next(row for row in rows if "–" in row)
    assert float(label.split()[-1]) > ends[0]


def test_spikes_and_losses_that_are_no_number_are_marked_where_they_happened() -> None:
    spiked = texts(scene(400, {300: 40.0, 350: None}))
    assert not any("▴" in row or "✗" in row for row in texts(scene()))
    assert spiked[1].index("▴") < spiked[1].index("✗")
    assert max(float(row.split("┤")[0]) for row in spiked if "┤" in row) < 10, "the spike does not flatten the rest"


def test_every_loss_is_on_the_axis_or_marked_at_its_edge() -> None:
    noise = [1.2 + 0.2 * math.sin(7 * step) for step in range(400)]
    low, high = loss_range([1.2, 1.21, 1.2], noise)
    assert low <= min(noise) < max(noise) <= high
    flat: dict[int, float | None] = dict(enumerate(noise, 1))
    assert not any("▴" in row for row in texts(scene(400, flat)))
    assert texts(scene(400, {**flat, 400: 2.1}))[1].count("▴") == 1


def test_a_spike_does_not_bend_the_smoothed_line() -> None:
    shown = losses(200, {150: 40.0})
    assert max(y for y in smooth(shown.xs, shown.ys)[130:] if y is not None) < 2


def test_the_axis_of_a_growing_run_moves_seldom() -> None:
    ys = [y for y in losses(900).ys if y is not None]
    assert len({loss_range(ys[:points], ys[:points]) for points in range(50, 900)}) <= 12


def test_the_axis_ends_with_the_plan_after_the_beginning() -> None:
    ends = [texts(scene(points))[-1].rpartition("─ ")[2] for points in (5, 240, 300)]
    assert ends == ["5 of 900", "900", "900"]


def test_labels_of_the_axis_differ_however_flat_the_loss_is() -> None:
    ys = tuple(0.69 + 1e-4 * math.sin(x) for x in range(100))
    flat = LossScene(Series("loss", "", tuple(map(float, range(100))), ys), Series("eval loss", "", (), ()))
    labels = [row.split("┤")[0] for row in texts(flat) if "┤" in row]
    assert len(set(labels)) == len(labels) == 5


def test_losses_that_are_no_numbers_are_one_row_of_marks_and_do_not_end_the_axis() -> None:
    steps = tuple(float(step) for step in (*range(0, 40, 2), *range(40, 80, 2), 88, 120, 150))
    ys = tuple(0.7 + 0.01 * (step % 3) if step < 40 else None for step in steps)
    rows = texts(LossScene(Series("loss", "", steps, ys), Series("eval loss", ""), None, math.nan))
    [marked] = [row for row in rows if "✗" in row]
    assert "✗ " not in marked
    assert marked.count("✗") > 30
    assert rows[-1].replace("─", " ").split() == ["steps", "0", "100", "200"]


def test_the_beginning_of_a_run_above_the_axis_is_no_spike() -> None:
    steps = tuple(float(step) for step in range(1, 121))
    ys = (3.3, 3.21, *(1.5 + 3 * math.exp(-step / 4) + 0.1 * math.sin(7 * step) for step in steps[2:]))
    begun = LossScene(Series("loss", "", steps, ys), Series("eval loss", ""))
    y_range = loss_drawing(begun)[1].y_range
    assert y_range is not None
    assert 3.17 < y_range[1] < 3.21, "the second loss lies above, its mean with the third below"
    assert not any("▴" in row for row in texts(begun))
    assert any("▴" in row for row in texts(begun._replace(loss=Series("loss", "", steps, (*ys[:60], 3.62, *ys[61:])))))
