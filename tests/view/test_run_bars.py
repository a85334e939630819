"""The bars of a step's time and of the memory: parts that add up, and the one that a finding is about."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.fakes.live_run import GIB, START_S, finished, running, sample
from tests.fakes.memory_outlooks import estimated
from tuner_tui.advice.estimate import MemoryOutlook
from tuner_tui.runs.events.run_state import RunState, WindowMinima
from tuner_tui.view.cells import line_width, plain_text
from tuner_tui.view.run_bars import COMPUTE, DATA, memory_rows, step_rows, step_shares, time_rows


def test_the_parts_of_a_step_add_up_to_the_whole() -> None:
    for state in (running(START_S, data_wait=0.31), finished("completed", "Completed.")):
        assert sum(step_shares(state)[0].values()) == pytest.approx(1.0)
    assert step_rows(RunState(), {}, 80) == []


def test_the_optimizer_is_a_part_where_its_time_is_known() -> None:
    state = running(START_S, data_wait=0.02)
    rank = state.ranks[0]
    assert rank.latest is not None
    timed = [replace(steps, optimizer_s=steps.train_s / 4) for steps in (*rank.recent, rank.latest)]
    rank = replace(rank, recent=tuple(timed[:-1]), latest=timed[-1])
    shares, _ = step_shares(replace(state, ranks={0: rank}))
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["optimizer"] * 2.92 == pytest.approx(shares["compute"])  # 0.25 and 0.73 of the training
    for width in (80, 200):  # the parts have the same names at every width
        row, *_ = step_rows(replace(state, ranks={0: rank}), {}, width)
        assert "▏compute 73 %" in plain_text(row)
        assert "▏optimizer 25 %" in plain_text(row)


@pytest.mark.parametrize(
    ("causes", "part"),
    [
        ({"gpu-underused": None, "data-wait": 0.3}, "! data 31 %"),
        ({"data-wait": 0.31, "cpu-contended": 0.9}, "! data 31 %"),  # other programs slow the rest down
    ],
)
def test_the_part_that_the_first_finding_is_about_has_a_sign_and_a_colour(
    causes: dict[str, float | None], part: str
) -> None:
    row, names = step_rows(running(START_S, data_wait=0.31), causes, 100)
    assert part in plain_text(row) + plain_text(names)
    assert line_width(row) == 100, "the bar takes the whole width"
    assert [span.text for span in row if span.style == "fill-warn"]


def test_the_bar_of_several_ranks_is_of_the_one_that_loses_most_between_steps() -> None:
    for state in (running(START_S, data_wait=0.1), finished("completed", "Completed.")):
        quick = state.ranks[0]
        assert quick.latest is not None
        late = tuple(replace(steps, rank=1, between_s=0.8 * steps.train_s) for steps in (*quick.recent, quick.latest))
        ranks = {0: quick, 1: replace(quick, rank=1, recent=late[:-1], latest=late[-1])}
        shares, rank = step_shares(replace(state, ranks=ranks))
        assert (rank, shares["between steps"] > 0.5) == ("rank 1", True)
        assert "of rank 1" in "".join(map(plain_text, step_rows(replace(state, ranks=ranks), {}, 100)))


def test_a_wait_for_a_core_is_in_all_parts_alike() -> None:
    shares = {"data": 0.1, "compute": 0.6, "optimizer": 0.3, "between steps": 0.0}
    row, *names = time_rows("step", shares, {"cpu-contended": 0.6}, 200)
    text = plain_text(row) + "".join(map(plain_text, names))
    for part in ("data 10 %", "no free core 60 %", "compute 20 %", "optimizer 10 %"):
        assert part in text


def test_nothing_stands_out_without_a_finding() -> None:
    row, names = step_rows(running(START_S, data_wait=0.31), {}, 100)
    assert "data 31 %" in plain_text(row), "as the finding says"
    assert "!" not in plain_text(row) + plain_text(names)
    assert plain_text(names).strip() == "outside the steps: evaluation 4 % · saving 1 %"


def test_time_outside_the_steps_stands_out_where_a_finding_is_about_it() -> None:
    _, names = step_rows(running(START_S, data_wait=0.31), {"save-share": 0.01, "data-wait": 0.3}, 100)
    assert [span.text for span in names if span.style == "warn"] == ["outside the steps: evaluation 4 % · saving 1 %"]


@pytest.mark.parametrize(
    ("data_wait", "waited", "parts"),
    [
        (0.05, 0.4, ("! no free core 40 %", "compute 55 %")),
        (0.05, 1.0, ("! no free core",)),
        (0.4, 0.77, ("! no free core 77 %", "data")),
    ],
)
def test_the_wait_for_a_core_is_no_part_of_computing(data_wait: float, waited: float, parts: tuple[str, ...]) -> None:
    row, *_ = step_rows(running(START_S, data_wait=data_wait), {"cpu-contended": waited}, 100)
    assert all(part in plain_text(row) for part in parts)
    assert ("compute" in plain_text(row)) == (waited < 0.5)


def test_a_wait_for_a_core_that_is_not_measured_is_part_of_computing() -> None:
    row, *_ = step_rows(running(START_S, data_wait=0.05), {"cpu-contended": None}, 100)
    assert "compute incl. no free core 95 %" in plain_text(row)


def test_what_fills_the_memory_is_measured_between_and_within_steps() -> None:
    state = running(START_S)
    rank = replace(state.ranks[0], allocated_minima=WindowMinima(1, (20 * GIB, 21 * GIB)))
    bar, names = memory_rows(replace(state, ranks={0: rank}), sample(), None, 120)
    shown = plain_text(bar)
    assert "weights, optimizer 26 %" in shown
    assert "activations 51 %" in shown
    assert "free" in shown
    weights = replace(
        state, ranks={0: rank}, parameters=6 * GIB, trainable_parameters=6 * GIB,
        in_effect={"parameter_dtype": "bfloat16"},
    )  # fmt: skip
    split = plain_text(memory_rows(weights, sample(), None, 160)[0])
    assert [part.strip() for part in split.split("▏")[1:3]] == ["weights 15 %", "optimizer 11 %"]
    adapter = replace(weights, trainable_parameters=GIB)
    assert "weights, optimizer 26 %" in plain_text(memory_rows(adapter, sample(), None, 120)[0])
    assert plain_text(names).endswith("peak 61.2 GiB")
    unknown = plain_text(memory_rows(state, sample(), None, 120)[0])
    assert "tensors 77 %" in unknown


def test_before_a_run_each_part_of_the_memory_of_a_gpu_has_a_name() -> None:
    assert memory_rows(None, sample(), MemoryOutlook(estimated(), on_gpu=False), 74) == [], "the RAM has a gauge"
    bar, *rows = map(plain_text, memory_rows(None, sample(), MemoryOutlook(estimated(), on_gpu=True), 74))
    assert bar.startswith("memory ")
    names = " ".join(rows)
    assert "next run 56 ± 2 GiB" in names
    assert all(name in bar + names for name in ("weights 5 %", "optimizer 10 %", "activations 52 %", "free 30 %"))
    (_, *starts) = memory_rows(RunState(), sample(), MemoryOutlook(estimated(), on_gpu=True), 74)
    assert "estimate" in "".join(map(plain_text, starts)), "of the run that starts"


def test_the_time_that_ranks_wait_for_a_slow_one_is_not_computing() -> None:
    (bar, *names) = time_rows("step", {DATA: 0.0, COMPUTE: 1.0}, {"slow-rank": 0.66}, 90)
    assert "! other ranks 66 %" in plain_text(bar)
    assert "compute 34 %" in plain_text(bar) + "".join(map(plain_text, names))
