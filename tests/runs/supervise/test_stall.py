"""When a run is looked into, and what is reported."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.runs.events.test_fold import steps
from tests.runs.events.test_progress import training
from tuner_tui.core.clock import ClockReading
from tuner_tui.inspection.hang import Hang, HangKind
from tuner_tui.runs.events.fold import fold, fold_all
from tuner_tui.runs.events.progress import phase_at
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Hung, Phase
from tuner_tui.runs.supervise.stall import AGAIN_S, CONFIRM_S, EARLY_S, PATIENCE_S, StallWatch

TRAINING = fold_all(RunState(), training(20))
"""Twenty steps of a second: it counts as stalled 10 seconds after the last one, at 30."""


class Answers:
    """Answers with each of `hangs` in turn, the last one again and again."""

    def __init__(self, *hangs: Hang) -> None:
        self.hangs = list(hangs)
        self.looks = 0

    def __call__(self, state: RunState) -> Hang:
        self.looks += 1
        return self.hangs.pop(0) if len(self.hangs) > 1 else self.hangs[0]


def hang(kind: HangKind = "rank-missing", *marks: str) -> Hang:
    return Hang(kind, f"It is {kind}.", ("rank 0: waits",), marks=marks)


def follow(answers: Answers, state: RunState, since_s: float, seconds: Sequence[float]) -> list[Hung]:
    """What is reported when the run is checked at each of `seconds` after `since_s`."""
    watch = StallWatch(answers)
    times = (since_s + second for second in seconds)
    reports = (watch.check(state, ClockReading(wall_s=t, monotonic_s=t - 7.0)) for t in times)
    return [report for report in reports if report is not None]


def test_reported_once_when_two_looks_agree_within_thirty_seconds() -> None:
    answers = Answers(hang())
    [report] = follow(answers, TRAINING, 20.0, range(200))
    assert (report.cause, report.sentence) == ("rank-missing", "It is rank-missing.")
    assert report.evidence == ("no step for 16 s", "rank 0: waits")
    assert report.t - 20.0 <= 30.0
    assert answers.looks == 2


@pytest.mark.parametrize("kind", ["rank-alone", "computing", "sleep", "data"])
def test_work_that_may_go_on_is_reported_late(kind: HangKind) -> None:
    [report] = follow(Answers(hang(kind)), TRAINING, 20.0, range(200))
    assert report.t - 20.0 >= PATIENCE_S


def test_a_training_with_slow_steps_is_not_looked_into_in_a_step() -> None:
    answers = Answers(hang())
    state = fold_all(RunState(), [steps(100.0 * n, n, 100.0 * n) for n in range(1, 8)])
    assert phase_at(state, 700.0 + 750.0) == "training"
    assert follow(answers, state, 700.0, range(0, 750, 5)) == []
    assert answers.looks == 0
    [report] = follow(answers, state, 700.0, range(0, 1000, 5))
    assert report.t - 700.0 > 800.0


def test_nothing_is_reported_of_what_moves() -> None:
    moving = Answers(*(hang("rank-missing", str(n)) for n in range(100)))
    assert follow(moving, TRAINING, 20.0, range(60)) == []
    assert moving.looks <= 2 + 60 / AGAIN_S + 1


def test_nobody_is_asked_while_steps_come() -> None:
    answers = Answers(hang())
    watch = StallWatch(answers)
    state = RunState()
    for event in training(40):
        state = fold(state, event)
        assert watch.check(state, ClockReading(event.t + 0.9, event.t + 0.9)) is None
    assert answers.looks == 0


@pytest.mark.parametrize("phase", ["evaluating", "saving", "starting"])
@pytest.mark.parametrize(("kind", "reported"), [("debugger", 1), ("other-shape", 1), ("network", 0), ("rank-alone", 0)])
def test_outside_of_training_only_what_never_ends(phase: str, kind: HangKind, reported: int) -> None:
    state = fold(TRAINING, Phase(t=21.0, rank=0, phase=phase))
    reports = follow(Answers(hang(kind)), state, 21.0, range(int(EARLY_S + 3 * CONFIRM_S)))
    assert len(reports) == reported


def test_the_next_step_ends_it_and_the_next_stall_is_reported_again() -> None:
    watch = StallWatch(Answers(hang()))
    state, reports = TRAINING, []
    for t in range(20, 120):
        if t == 70:
            state = fold(state, steps(70.0, 21, 21.0))
            assert state.hung is None
        report = watch.check(state, ClockReading(float(t), float(t)))
        if report is not None:
            reports.append(report)
            state = fold(state, report)
            assert state.hung == report
    assert len(reports) == 2


def test_a_counter_read_late_does_not_end_it() -> None:
    state = fold(TRAINING, Hung(t=50.0, cause="lock", sentence="It waits for a lock."))
    assert fold(state, steps(19.5, 21, 19.5)).hung is not None
