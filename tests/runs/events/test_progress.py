"""Time left, phases and stalls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runs.events.test_fold import steps
from tests.runs.store.test_codec import events
from tuner_tui.runs.events import types as ev
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.progress import FIRST_STEP_STALL_S, HistoryBuilder, phase_at, seconds_left, stall_after_s
from tuner_tui.runs.events.run_state import RunState


def training(count: int, step_s: float = 1.0, total: int = 100, **more: Any) -> list[ev.Event]:
    return [
        ev.Plan(t=0.0, rank=0, total_steps=total),
        ev.Phase(t=0.0, rank=0, phase="training"),
        *(steps(n * step_s, n, n * step_s, **more) for n in range(1, count + 1)),
    ]


@given(st.lists(events(), max_size=12), st.floats(0, 1e10))
def test_time_left_is_never_negative(story: list[ev.Event], now: float) -> None:
    left = seconds_left(fold_all(RunState(), story), now)
    assert left is None or left >= 0


def test_no_time_left_without_evidence() -> None:
    assert seconds_left(RunState(), 0.0) is None
    assert seconds_left(fold_all(RunState(), training(2)), 2.0) is None
    assert seconds_left(fold_all(RunState(), [steps(float(n), n, float(n)) for n in range(1, 9)]), 9.0) is None


def test_time_left_from_the_measured_step_time() -> None:
    left = seconds_left(fold_all(RunState(), training(10)), 10.0)
    assert left is not None
    assert left == pytest.approx(90.0)


def test_a_run_that_is_asked_to_stop_has_no_time_left() -> None:
    asked = ev.StopRequested(t=9.0, how="stop")
    assert seconds_left(fold_all(RunState(), [*training(9), asked]), 9.0) is None


def test_time_passes_between_two_counters_but_no_further_than_a_step() -> None:
    state = fold_all(RunState(), training(10))
    near, far = seconds_left(state, 10.5), seconds_left(state, 500.0)
    assert near is not None
    assert far is not None
    assert (near, far) == pytest.approx((89.5, 89.0))


def test_evaluation_and_saving_are_charged() -> None:
    story = [
        *training(20, eval_s=40.0, save_s=10.0),
        ev.Evaluated(t=20.0, rank=0, step=20, metrics={}, seconds=40.0),
        ev.Checkpoint(t=20.0, rank=0, step=10, path="x", seconds=10.0),
    ]
    left = seconds_left(fold_all(RunState(), story), 20.0)
    assert left is not None
    assert left == pytest.approx(80 * 1.0 + 4 * 40.0 + 9 * 10.0)


@pytest.mark.parametrize(("count", "seconds", "expected"), [(30, 40.0, None), (90, 40.0, None), (90, 20.0, 10.0)])
def test_whether_an_evaluation_before_the_first_steps_is_repeated_is_not_known(
    count: int, seconds: float, expected: float | None
) -> None:
    story = [ev.Evaluated(t=1.0, rank=0, step=1, metrics={}, seconds=seconds), *training(count, eval_s=seconds)]
    left = seconds_left(fold_all(RunState(), story), float(count))
    assert left == expected if expected is None else left == pytest.approx(expected)


def test_evaluations_are_expected_at_the_interval_of_those_that_were_seen() -> None:
    story = [
        *training(75, eval_s=80.0),
        *(ev.Evaluated(t=float(step), rank=0, step=step, metrics={}, seconds=20.0) for step in (0, 20, 40, 60)),
    ]
    assert seconds_left(fold_all(RunState(), story), 75.0) == pytest.approx(25.0 + 2 * 20.0)


def test_a_resumed_run_counts_its_own_evaluations_only() -> None:
    story = [
        ev.Plan(t=0.0, rank=0, total_steps=1100, first_step=1000),
        *(steps(float(n), n, float(n), step=1000 + n, eval_s=30.0) for n in range(1, 11)),
        ev.Evaluated(t=10.0, rank=0, step=1010, metrics={}),
    ]
    left = seconds_left(fold_all(RunState(), story), 10.0)
    assert left is not None
    assert left == pytest.approx(90 * 4.0)


def rollouts(cycles: float, steps_each: int = 40, step_s: float = 0.1, rollout_s: float = 6.0) -> list[ev.Event]:
    """Counters about once a second: a rollout before every `steps_each` steps, 400 steps in all."""
    story: list[ev.Event] = [ev.Plan(t=0.0, rank=0, total_steps=400)]
    written_s = -1.0
    for step in range(1, int(cycles * steps_each) + 1):
        t = step * step_s + rollout_s * (1 + (step - 1) // steps_each)
        if t >= written_s + 1:
            story.append(steps(t, step, t))
            written_s = t
    return story


@pytest.mark.parametrize("cycles", [2.5, 3.0, 5.02, 5.5, 5.9, 6.0, 9.5])
def test_the_rollouts_to_come_are_counted(cycles: float) -> None:
    story = rollouts(cycles)
    left = seconds_left(fold_all(RunState(), story), story[-1].t)
    assert left == pytest.approx(10 * (6.0 + 4.0) - story[-1].t, abs=3.0)


def test_a_rollout_passes_before_the_next_steps() -> None:
    story = rollouts(5.0)
    state, now = fold_all(RunState(), story), story[-1].t
    assert seconds_left(state, now + 5) == pytest.approx((seconds_left(state, now) or 0.0) - 5, abs=0.1)


def test_no_time_left_before_the_second_rollout_of_a_training() -> None:
    story = rollouts(1.5)
    assert seconds_left(fold_all(RunState(), story), story[-1].t) is None


def test_hiccups_at_odd_times_are_spread_over_the_steps() -> None:
    hiccups = {20: 5.0, 40: 5.0, 100: 5.0, 130: 5.0}
    story: list[ev.Event] = [ev.Plan(t=0.0, rank=0, total_steps=400)]
    t = 0.0
    for step in range(1, 201):
        t += (2.0 if step < 100 else 1.0) + hiccups.get(step, 0.0)  # it is faster by now
        story.append(steps(t, step, t))
    left = seconds_left(fold_all(RunState(), story), t)
    assert left == pytest.approx(200 * (1.0 + 20.0 / 181), rel=0.05)


def test_a_single_hiccup_changes_no_time_left() -> None:
    story = [*training(30), *(steps(n + 3.0, n, n + 3.0) for n in range(31, 61))]
    assert seconds_left(fold_all(RunState(), story), 63.0) == pytest.approx(40.0, abs=1.0)


def test_stalled_after_several_step_times() -> None:
    state = fold_all(RunState(), training(10, step_s=5.0, total=1000))
    assert stall_after_s(state) == pytest.approx(40.0)
    assert phase_at(state, 50.0 + 39.0) == "training"
    assert phase_at(state, 50.0 + 41.0) == "stalled"


@pytest.mark.parametrize("phase", ["evaluating", "saving", "compiling", "starting", "skipping", "ending"])
def test_only_training_stalls(phase: str) -> None:
    state = fold_all(RunState(), [*training(10), ev.Phase(t=10.0, rank=0, phase=phase)])
    assert phase_at(state, 1e6) == phase


def test_a_first_step_gets_ten_minutes() -> None:
    state = fold_all(RunState(), [ev.Phase(t=100.0, rank=0, phase="training")])
    assert phase_at(state, 100.0 + FIRST_STEP_STALL_S - 1) == "training"
    assert phase_at(state, 100.0 + FIRST_STEP_STALL_S + 1) == "stalled"


def test_what_is_logged_with_the_loss_has_a_series_of_its_own() -> None:
    builder = HistoryBuilder()
    for step in (1, 2):
        parts, others = {"kl_loss": 0.5 * step}, {"rewards/margins": 0.25 * step, "entropy": float("nan")}
        builder.add(ev.Metrics(t=float(step), step=step, loss=1.0, parts=parts, others=others))
    logged = {series.name: series.ys for series in builder.history().logged}
    assert logged == {"kl loss": (0.5, 1.0), "rewards/margins": (0.25, 0.5), "entropy": (None, None)}
