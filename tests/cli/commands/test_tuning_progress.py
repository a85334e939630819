"""A tuning in plain lines."""

from __future__ import annotations

from dataclasses import replace

from tests.fakes.listed_search import measured
from tuner_tui.cli.commands.tune import TuningLines, differences, format_measurement, skipped_lines
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.trial import CompletedTrial, Measurement, SkippedChange, Trial, TuningConclusion
from tuner_tui.tuning.trial_log import LogEntry, TrialCompleted, TrialStarted, TuningEnded, TuningStarted

START = Settings(per_device_train_batch_size=8)
AFTER = START.changed(dataloader_num_workers=2, dataloader_prefetch_factor=4)


def lines(*entries: LogEntry) -> list[str]:
    text = TuningLines()
    return [line for entry in entries for line in text.lines(entry)]


def begun(settings: Settings, low_s: float, high_s: float) -> TrialStarted:
    trial = Trial(number=2, purpose="knob", settings=settings, reason="at most +30 % to gain: the wait for data")
    return TrialStarted(t=1.0, trial=trial, run="r002", left_low_s=low_s, left_high_s=high_s)


def done(settings: Settings, measurement: Measurement) -> TrialCompleted:
    return TrialCompleted(
        t=1.0, tried=CompletedTrial(Trial(number=1, purpose="start", settings=settings, reason=""), measurement)
    )


def test_a_trial_says_what_it_changes_why_and_what_came_of_it() -> None:
    printed = lines(done(START, measured()), begun(AFTER, 30.0, 150.0))
    assert printed == [
        "          100 samples/s ± 1.0 %, 5 steps, 10 s",
        "trial 2   knob     workers 0 → 2, prefetch – → 4: at most +30 % to gain: the wait for data"
        "  (about 30 s to 2 min left)",
    ]


def test_memory_and_verdict() -> None:
    verdict = TuningConclusion(
        winner=AFTER, sentence="Confirmed: 1.50×.", start=measured(100), best=measured(15_000, peak_bytes=2**31),
        learning_rate_note="Take 2e-3.",
    )  # fmt: skip
    printed = lines(
        TuningStarted(t=1.0, capacity_bytes=2**31, limit_bytes=2**30),
        done(START, measured()),
        TuningEnded(t=2.0, status="finished", verdict=verdict, preset="/x/demo-tuned.yaml", sentence="Room moved."),
    )
    assert printed[0] == "memory    1.00 of 2.00 GiB may be used"
    assert printed[2:] == [
        "verdict   Confirmed: 1.50×.",
        "start     100 samples/s ± 1.0 %, 5 steps, 10 s",
        "best      15,000 samples/s ± 1.0 %, 2.00 GiB, 5 steps, 10 s",
        "changed   workers 0 → 2, prefetch – → 4",
        "rate      Take 2e-3.",
        "finished  Room moved.",
        "saved     /x/demo-tuned.yaml",
    ]


def test_a_busy_machine_and_the_time_of_the_whole_job() -> None:
    verdict = TuningConclusion(winner=AFTER, sentence="Confirmed.", job_steps=4000, start_job_s=405.2, best_job_s=342.0)
    printed = lines(
        TuningStarted(t=1.0, busy="other processes use 52 % of the CPU (python spin.py 2.0 cores)"),
        TuningEnded(t=2.0, status="finished", verdict=verdict),
    )
    assert printed == [
        "busy      Other processes use 52 % of the CPU (python spin.py 2.0 cores): trials continue, but "
        "nothing is confirmed or saved meanwhile.",
        "verdict   Confirmed.",
        "whole job 4,000 steps: 6 min 45 s → 5 min 42 s, start-up included",
    ]


def test_a_larger_batch_that_makes_fewer_steps_names_them() -> None:
    best = replace(measured(), job_steps=1000)
    verdict = TuningConclusion(
        winner=AFTER, sentence="Confirmed.", best=best, job_steps=4000, start_job_s=405.2, best_job_s=342.0
    )
    assert "whole job 4,000 steps: 6 min 45 s → 5 min 42 s for 1,000 steps, start-up included" in lines(
        TuningEnded(t=2.0, status="finished", verdict=verdict)
    )


def test_what_a_figure_leaves_out_is_said_once() -> None:
    entry = done(START, measured(sentence="no evaluation: several processes"))
    printed = lines(entry, entry)
    assert [line.strip() for line in printed].count("(no evaluation: several processes)") == 1


def test_what_was_not_tried_is_told_by_reasons_and_the_rest_counted() -> None:
    alike = [SkippedChange(knob="precision", value=value, reason="no kernels") for value in ("bf16", "fp16")]
    others = [SkippedChange(knob="torch_compile", value="on", reason=f"reason {number}") for number in range(8)]
    printed = list(skipped_lines([*others, *alike]))
    assert printed[0] == "not tried precision bf16, precision fp16: no kernels"
    assert len(printed) == 8
    assert printed[-1] == "not tried 2 more, for other reasons (--json)"


def test_what_was_not_measured_says_what_happened() -> None:
    failed = Measurement(outcome="out-of-memory", seconds=65.0, sentence="Out of memory at step 2.")
    assert format_measurement(failed) == "out-of-memory: Out of memory at step 2. (65 s)"
    assert differences(START, START) == []
