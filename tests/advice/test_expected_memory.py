"""A remedy says the peak it leads to, and is not offered where that does not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.fakes.situations import GB, NOW, box, card, counters, samples, situation, training
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.expected_memory import ExpectedPeak, expected_peak
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import GIB
from tuner_tui.runs.events.run_state import RankState, RunState
from tuner_tui.runs.events.types import OutOfMemory
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings


def batch(micro: int, accumulation: int = 1) -> dict[str, Any]:
    return {"per_device_train_batch_size": micro, "gradient_accumulation_steps": accumulation}


def running(
    used_gb: float, settings: dict[str, Any], total_gb: float = 24, busy_pct: float = 96.0, **known: Any
) -> Situation:
    """A training that holds `used_gb` of its card."""
    gpu = {
        "memory_used_bytes": int(used_gb * GB), "memory_total_bytes": int(total_gb * GB), "utilisation_pct": busy_pct,
    }  # fmt: skip
    inventory = box(card(memory_total_bytes=int(total_gb * GB)))
    now = situation(samples=samples(gpu=gpu, workers=(50.0,) * 8), inventory=inventory, **known)
    assert now.settings is not None
    return replace(now, settings=now.settings.changed(**settings))


def observed(peak_gb: float, held_gb: float) -> RunState:
    """A training whose allocator held `peak_gb` at most, all of it in use then, and `held_gb` between steps."""
    figures = {"allocated_peak_bytes": int(peak_gb * GB), "reserved_peak_bytes": int(peak_gb * GB)}
    return training(steps={**figures, "allocated_bytes": int(held_gb * GB)})


def peak_of(now: Situation, change: dict[str, Any]) -> ExpectedPeak:
    found = expected_peak(now, change)
    assert found is not None
    return found


def test_what_is_held_between_steps_stays_and_the_rest_grows_with_the_batch() -> None:
    """1 GB outside the allocator + 4 held + 6 × 2 = 17 GB, by hand."""
    now = running(11, batch(16), state=observed(peak_gb=10, held_gb=4))
    assert peak_of(now, batch(32)).peak_bytes == pytest.approx(17 * GB)
    assert peak_of(now, batch(8)).peak_bytes == pytest.approx(8 * GB)
    assert peak_of(now, batch(32)).verdict == "fits"


def test_where_the_held_memory_is_not_known_the_bounds_are_all_and_nothing() -> None:
    found = peak_of(running(10, batch(16)), batch(24))
    context = 500 * 2**20
    assert found.low_bytes == 10 * GB
    assert found.high_bytes == pytest.approx(context + (10 * GB - context) * 1.5)


def test_the_estimate_is_corrected_by_what_the_run_measured() -> None:
    """Twice the memory that the estimate says, so twice the growth that it says."""
    job = BuiltinJob(model="bert-base")
    small, large = batch(8), batch(16)
    plain = Situation(RunState(), NOW, Settings(**small), box(card()), job=job)
    first, second = (peak_of(plain, one).peak_bytes for one in (batch(8) | {"precision": "bf16"}, large))
    assert second > first
    state = observed(peak_gb=12, held_gb=4)
    measured = peak_of(running(12.5, small | {"precision": "fp32"}, state=state, job=job), large)
    assert "corrected by this run" in measured.rests_on
    assert 12.5 * GB < measured.peak_bytes < 24.5 * GB


def test_a_batch_that_does_not_fit_is_not_offered() -> None:
    """The example of the notes: 48 → 192 at 94 % of the card."""
    full = running(22.5, batch(48, 4), busy_pct=20)
    for where in (None, "very-low", "both-low"):
        for remedy in remedies_for("gpu-underused", full, where):
            assert "per_device_train_batch_size" not in remedy.change
    for remedy in remedies_for("gpu-underused", running(3, batch(48, 4), busy_pct=20), "both-low"):
        if "per_device_train_batch_size" in remedy.change:
            assert remedy.peak is not None
            assert remedy.peak.high_bytes <= 24 * GB
            assert "of 22.4 GiB" in remedy.expectation


def test_without_accumulation_the_effective_batch_grows_with_both_rates_shown() -> None:
    """48 × 1 at 60 % of the time and 29 % of the memory of the card; √2 and 2 times 5e-5."""
    (finding,) = diagnose(running(7, batch(48), busy_pct=60))
    first = finding.remedies[0]
    assert first.change == {**batch(96), "learning_rate": pytest.approx(7.07e-5)}
    assert "square-root scaling gives 7.07e-05, linear scaling 0.0001" in first.why
    assert "effective batch 48 → 96" in first.title


def test_with_accumulation_the_effective_batch_is_held() -> None:
    """The headline of the notes (000): GPU 85 % with 32 × 3, 7.0 → 7.8 of 8 GB with 48 × 2."""
    now = running(7.0, batch(32, 3), total_gb=8, busy_pct=85)
    (finding,) = diagnose(now)
    assert (finding.cause, finding.severity) == ("gpu-underused", "hint")
    assert finding.remedies[0].change == batch(48, 2)
    assert finding.remedies[0].peak is not None
    assert finding.remedies[0].peak.peak_bytes / GB == pytest.approx(7.8, abs=0.1)
    assert "may not fit" in finding.remedies[0].expectation


@pytest.mark.parametrize(("used_gb", "cause"), [(7, ["gpu-memory-unused"]), (20, []), (18.9, ["gpu-memory-unused"])])
def test_unused_memory_is_a_hint_of_its_own(used_gb: float, cause: list[str]) -> None:
    assert [finding.cause for finding in diagnose(running(used_gb, batch(12)))] == cause


@pytest.mark.parametrize("busy_pct", [79.0, 85.0, 89.0])
def test_a_load_between_70_and_90_percent_is_a_hint(busy_pct: float) -> None:
    (finding,) = diagnose(running(20, batch(12), busy_pct=busy_pct))
    assert (finding.cause, finding.severity) == ("gpu-underused", "hint")


def test_after_out_of_memory_the_next_batch_is_one_that_fits_by_the_estimate() -> None:
    job, small = BuiltinJob(model="bert-base"), box(card(memory_total_bytes=6 * GIB))
    state = RunState(out_of_memory=OutOfMemory(t=NOW, rank=0, message="CUDA out of memory"))
    settings = Settings(per_device_train_batch_size=512, precision="bf16", max_length=128)
    first = remedies_for("gpu-oom", Situation(state, NOW, settings, small, job=job), "training")[0]
    micro = first.change["per_device_train_batch_size"]
    assert isinstance(micro, int)
    assert micro < 256, "half of it does not fit either"
    assert micro * int(str(first.change["gradient_accumulation_steps"])) == 512
    assert first.peak is not None
    assert first.peak.verdict != "too large"


def test_in_training_nothing_is_offered_that_leaves_training_unchanged() -> None:
    for remedy in remedies_for("gpu-oom", situation(), "training"):
        assert "per_device_eval_batch_size" not in remedy.change


def test_counters_without_an_allocator_are_no_measurement() -> None:
    assert expected_peak(situation(samples=(), state=training()), batch(96)) is None
    ranks = {0: RankState(0, 1, counters(), (counters(),))}
    assert expected_peak(situation(samples=(), state=replace(training(), ranks=ranks)), {"optim": "sgd"}) is None
