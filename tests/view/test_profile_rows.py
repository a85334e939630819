"""What is drawn of a profile, and of a step that no profiler has timed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tuner_tui.inspection.slow_step import judge_step
from tuner_tui.inspection.step_trace import CallTime, PartTime, StepTimes
from tuner_tui.runs.read.live_inspection import RankProfile, RunProfile
from tuner_tui.view.cells import line_width, plain_text
from tuner_tui.view.profile_rows import profile_rows

PARTS = (PartTime("data", 0.02, 0.0), PartTime("forward", 0.18, 0.05))
TIMES = StepTimes(1, "cpu", 0.2, 0.21, PARTS, (CallTime("encoder.layers.0.attention.query", 0.1, 2.0),), ())


def drawn(profile: RunProfile, width: int) -> str:
    rows = profile_rows(profile, width)
    assert all(line_width(row) <= width for row in rows)
    return "\n".join(plain_text(row) for row in rows)


@pytest.mark.parametrize("width", [76, 110])
def test_the_rank_that_decides_and_the_others(width: int) -> None:
    rank = RankProfile(0, TIMES, judge_step(TIMES), 0.4, compiled=True, problem="The trace could not be saved: full.")
    text = drawn(RunProfile((rank, RankProfile(1, TIMES, judge_step(TIMES), 0.4, compiled=False))), width)
    assert text.startswith("Rank 0: Device-bound: 65 % of a step")
    assert "Rank 1: Device-bound" in text
    assert "own code 50 ms" in text
    assert "Modules inside torch.compile are not timed one by one." in text
    assert "1 step evaluated; the training lost 0.4 s, the time of 2 steps." in text
    assert text.endswith("The trace could not be saved: full.")
    quicker = drawn(RunProfile((replace(rank, lost_s=-0.4),)), width)  # as its speed varies by more than that
    assert "1 step evaluated; no measurable loss of time." in quicker


def test_a_step_without_a_profiler() -> None:
    text = drawn(RunProfile((), ("Rank 0 was not profiled: it has its own.",), TIMES), 76)
    assert text.startswith("Rank 0 was not profiled: it has its own.")
    assert "Part of the step, timed without the profiler" in text
