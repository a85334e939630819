"""Memory that grows with every step: a finding while the run lives, and evidence after it ran out of memory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.situations import GB, PID, box, counters, make_gpu, samples, situation, training
from tuner_tui.advice.crash.findings import crash_findings
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.situation import Situation
from tuner_tui.runs.events.run_state import NO_MINIMA, RankState, WindowMinima
from tuner_tui.runs.events.types import Exited

MB = 1_000_000
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity of 23.5 GiB"
)


def rising(mb_a_step: float, stretches: int = 9, first_mb: int = 4000) -> WindowMinima:
    return WindowMinima(64, tuple(round((first_mb + mb_a_step * 64 * n) * MB) for n in range(stretches)))


def memory_findings(
    allocated: WindowMinima = NO_MINIMA, anonymous: WindowMinima = NO_MINIMA, rank: int = 0, **changes: Any
) -> list[Finding]:
    """What is found of memory in a training after 600 of 9,000 steps; its GPU has 4 GB left, its host 44."""
    state = training(
        ranks={rank: RankState(rank, PID, counters(), (), allocated, anonymous)}, **changes.pop("state", {})
    )
    return [finding for finding in diagnose(situation(state=state, **changes)) if finding.cause == "memory-grows"]


def test_a_gpu_that_will_be_full_before_the_end() -> None:
    [finding] = memory_findings(rising(1.0))
    assert finding.sentence == "GPU memory grows by 1 MB per step: full in about 4,000 steps, 33 min"
    assert finding.evidence == ("3.8 GiB → 4.2 GiB held between steps, over 448 steps",)
    assert finding.severity == "warning"
    assert ".item()" in finding.remedies[0].why
    assert "_record_memory_history" in finding.remedies[1].why


def test_nothing_is_said_where_it_lasts_to_the_end() -> None:
    slow = rising(0.4, stretches=12)
    assert memory_findings(slow) == []
    assert memory_findings(rising(1.0), state={"total_steps": 4000}) == []
    assert len(memory_findings(slow, state={"total_steps": None})) == 1


def test_where_the_end_is_not_known_a_day_is_looked_ahead() -> None:
    slow = WindowMinima(2_000_000, tuple(4000 * MB + 70 * MB * n for n in range(9)))
    assert memory_findings(slow, state={"total_steps": None}) == []


@pytest.mark.parametrize(
    "lows",
    [rising(1.0, stretches=7), rising(0.1), WindowMinima(64, (4 * GB,) * 9), WindowMinima(64, (4 * GB, None, 5 * GB))],
)
def test_too_few_looks_and_too_little_are_not_told(lows: WindowMinima) -> None:
    assert memory_findings(lows, state={"total_steps": None}) == []


def test_the_hosts_memory_and_a_limit_of_the_runs_own() -> None:
    [finding] = memory_findings(anonymous=rising(8.0))
    assert finding.sentence == "Host memory grows by 8 MB per step: full in about 5,500 steps, 46 min"
    assert "memray" in finding.remedies[1].why
    assert memory_findings(anonymous=rising(1.0)) == []
    [limited] = memory_findings(anonymous=rising(1.0), inventory=box(), samples=samples(), memory_limit_bytes=6 * GB)
    assert "full in about 1,488 steps" in limited.sentence
    [capped] = memory_findings(rising(1.0), memory_limit_bytes=6 * GB)
    assert "full in about 1,488 steps" in capped.sentence


def test_what_the_allocator_holds_in_reserve_is_room_too() -> None:
    lows, reserved = rising(1.0), counters(reserved_peak_bytes=6 * GB)
    state = training(ranks={0: RankState(0, PID, reserved, (), lows)})
    [finding] = (finding for finding in diagnose(situation(state=state)) if finding.cause == "memory-grows")
    assert "full in about 5,488 steps" in finding.sentence


def test_the_rank_is_named_where_there_are_several() -> None:
    two = samples(gpu={"processes": ()})
    ranks = {0: RankState(0, PID, counters()), 1: RankState(1, PID + 1, counters(), (), rising(1.0))}
    state = training(ranks=ranks)
    findings = [
        finding.sentence for finding in diagnose(situation(state=state, samples=two)) if finding.cause == "memory-grows"
    ]
    assert findings[0].startswith("GPU memory on rank 1 grows")


def test_a_gpu_of_whose_memory_nothing_is_known() -> None:
    assert memory_findings(rising(1.0), samples=samples(gpu={"memory_used_bytes": None})) == []
    assert memory_findings(rising(1.0), samples=samples()) == []
    assert memory_findings(rising(1.0), samples=()) == []


def out_of_memory_run(lows: WindowMinima) -> Situation:
    ranks = {0: RankState(0, PID, counters(), (), lows)}
    return situation(
        state=training(ranks=ranks, exited=Exited(t=1.0, exit_code=1)), log=(OUT_OF_MEMORY,), inventory=box(make_gpu())
    )


def test_out_of_memory_after_a_steady_rise_says_so_before_it_offers_smaller_batches() -> None:
    [finding] = crash_findings(out_of_memory_run(rising(16.0, stretches=5)))
    assert finding.cause == "gpu-oom"
    assert "4.7 GiB → 7.5 GiB held between steps, over 192 steps" in finding.evidence
    assert finding.remedies[0].title == "keep numbers instead of tensors"
    assert any(remedy.change for remedy in finding.remedies)


@pytest.mark.parametrize("lows", [NO_MINIMA, rising(16.0, stretches=4), rising(1.0, stretches=5)])
def test_out_of_memory_without_one_does_not(lows: WindowMinima) -> None:
    [finding] = crash_findings(out_of_memory_run(lows))
    assert finding.cause == "gpu-oom"
    assert not any("held between steps" in line for line in finding.evidence)
    assert finding.remedies[0].title != "keep numbers instead of tensors"
