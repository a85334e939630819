"""The winner of a tuning becomes a preset: its name, what it holds, and what it never overwrites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fakes.listed_search import ListedGpus, measured
from tests.fakes.situations import box
from tests.tuning.builders import SCRIPT, resolved
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.model import Resolved, Settings
from tuner_tui.settings.preset_file import Preset, save_preset
from tuner_tui.settings.presets import load_preset, preset_path
from tuner_tui.tuning.trial import Measurement, TuningConclusion
from tuner_tui.tuning.trial_runner import TrialCallbacks
from tuner_tui.tuning.tuned_preset import (
    preset_mismatch,
    preset_request,
    run_preset,
    save_tuned_preset,
    tuned_preset,
    tuned_preset_name,
)

START = resolved(per_device_train_batch_size=8, learning_rate=1e-3)


def verdict(**changes: object) -> TuningConclusion:
    winner = START.settings.changed(dataloader_num_workers=2)
    return TuningConclusion(
        winner=winner,
        sentence="Confirmed: 1.50×.",
        start=measured(100, peak_bytes=2**30),
        best=measured(15_000.4, run_id="r009"),
        **changes,  # type: ignore[arg-type]
    )


def test_it_trains_as_the_winner_did() -> None:
    job = CommandJob(command=("python", "train.py", "--token", "hf_abcdefghijklmnopqrst"), apply="inject")
    preset = tuned_preset("mine", verdict(learning_rate_note="Take 2e-3."), START, job, box(), "t004")
    assert preset.settings == {
        "per_device_train_batch_size": 8, "learning_rate": 1e-3, "dataloader_num_workers": 2,
    }  # fmt: skip
    assert (preset.before, preset.after) == ("100 samples/s, 1.00 GiB, run r001", "15,000 samples/s, run r009")
    whole = tuned_preset("mine", verdict(start_job_s=41.1, best_job_s=34.9, job_steps=400), START, job, box(), "t004")
    assert whole.before == "100 samples/s, 41 s for 400 steps, 1.00 GiB, run r001"
    fewer = replace(verdict(best_job_s=26.0, job_steps=500), best=measured(366.6, job_steps=125))
    assert tuned_preset("mine", fewer, START, job, box(), "t004").after == "367 samples/s, 26 s for 125 steps, run r001"
    assert preset.about == "Tuned: Confirmed: 1.50×. Take 2e-3."
    assert preset.source is not None
    assert "t004" in preset.source
    assert isinstance(preset.job, CommandJob)
    assert "hf_abc" not in " ".join(preset.job.command)


@pytest.mark.parametrize(("current", "won"), [((2, 8), (16, 1)), ((1, 8), (8, 1))])
def test_a_value_that_won_is_kept_though_it_equals_a_default_of_ours(
    current: tuple[int, int], won: tuple[int, int]
) -> None:
    """Without its accumulation, 16 × 1 would train as 16 × 8, and without both, 8 × 1 as 1 × 8."""
    micro, accumulation = "per_device_train_batch_size", "gradient_accumulation_steps"
    seen = Resolved(Settings().changed(**{micro: current[0], accumulation: current[1]}))
    conclusion = TuningConclusion(winner=Settings().changed(**{micro: won[0], accumulation: won[1]}), sentence="")
    job = CommandJob(command=("python", "train.py"), apply="inject")
    assert tuned_preset("mine", conclusion, seen, job, box(), "t004").settings == {micro: won[0], accumulation: won[1]}


def test_the_built_in_job_gets_every_tuned_value_lest_others_are_recommended() -> None:
    preset = tuned_preset("mine", verdict(), START, BuiltinJob(), box(), "t004")
    assert preset.settings["gradient_accumulation_steps"] == 1
    assert preset.settings["precision"] == "fp32"
    assert "tf32" not in preset.settings, "unset"


def test_nothing_is_overwritten() -> None:
    preset = Preset(name="never-twice-tuned", settings={"learning_rate": 1e-3})
    paths = [save_tuned_preset(preset) for _ in range(3)]
    assert [path.stem for path in paths] == ["never-twice-tuned", "never-twice-tuned-2", "never-twice-tuned-3"]
    assert paths[0] == preset_path("never-twice-tuned")
    assert load_preset(paths[2]).preset.name == "never-twice-tuned-3"


@pytest.mark.parametrize(
    ("preset", "job", "name"),
    [
        ("demo", BuiltinJob(), "demo-tuned"),
        ("demo-tuned", BuiltinJob(), "demo-tuned"),
        ("my/folder/gpu.yaml", BuiltinJob(), "gpu-tuned"),
        (None, CommandJob(command=("python", "src/train it.py")), "train-it-tuned"),
        (None, CommandJob(command=("/usr/bin/env", "thing")), "env-tuned"),
        (None, BuiltinJob(), "training-tuned"),
    ],
)
def test_names(preset: str | None, job: Job, name: str) -> None:
    assert tuned_preset_name(preset, job) == name
    assert Path(preset_path(name)).stem == name


MICRO, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"


def step(samples: int, **figures: Any) -> Measurement:
    return measured(speed=samples / 0.5, step_time_s=0.5, **figures)


def test_a_preset_that_trains_as_the_winner_did_is_saved() -> None:
    last_batch_of_an_epoch = step(12)
    assert preset_mismatch(last_batch_of_an_epoch, step(16), {MICRO: 16}, {MICRO: 16}) == ""


def test_another_accumulation_is_seen_in_the_settings_or_in_the_samples_of_a_step() -> None:
    assert "accumulation" in preset_mismatch(step(128), step(16), {ACCUMULATION: 8}, {ACCUMULATION: 1})
    assert preset_mismatch(step(128), step(16), {}, {}) == "it trains with 128 samples per step instead of 16"


def test_a_preset_that_trains_on_other_samples_is_not_saved() -> None:
    mismatch = preset_mismatch(step(16, dataset_samples=50), step(16, dataset_samples=100), {}, {})
    assert mismatch == "it trains on 50 samples, the current settings on 100"


def test_a_preset_that_does_not_run_is_not_saved() -> None:
    failed = Measurement(outcome="failed", seconds=1.0, sentence="No such file.")
    assert preset_mismatch(failed, step(16), {}, {}) == "its run ended as failed: No such file."


def test_the_file_alone_decides_what_is_run(tmp_path: Path) -> None:
    path = tmp_path / "winner.yaml"
    save_preset(Preset(name="winner", settings={MICRO: 16, ACCUMULATION: 1}, job=SCRIPT), path)
    base = LaunchRequest(job=SCRIPT, resolved=resolved(learning_rate=1e-3), cwd=tmp_path)
    request = preset_request(path, base)
    assert request.resolved.chosen == {MICRO, ACCUMULATION}
    assert request.job == SCRIPT


def test_a_run_that_was_ended_from_outside_is_repeated_once(tmp_path: Path) -> None:
    killed = Measurement(outcome="failed", seconds=1.0, passing=True)
    request = LaunchRequest(job=SCRIPT, resolved=resolved(), cwd=tmp_path)
    runner = ListedGpus([killed, measured(7.0)])
    assert run_preset(request, runner, TrialCallbacks()).throughput == 7.0
