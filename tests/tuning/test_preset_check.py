"""A written preset is run for a few steps: what is in effect has to be what won."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.fakes.listed_search import ListedCards, measured
from tests.tuning.builders import SCRIPT, resolved
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.settings.presets import Preset, save_preset
from tuner_tui.tuning.trial import Measurement
from tuner_tui.tuning.trial_runner import TrialCallbacks
from tuner_tui.tuning.tuned_preset import ObservedTraining, preset_mismatch, preset_request, run_preset

MICRO, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"


def observed(micro: int, step_samples: int, **in_effect: Any) -> ObservedTraining:
    return ObservedTraining(measured(speed=step_samples / 0.5, step_time_s=0.5), {MICRO: micro, **in_effect})


def test_a_preset_that_trains_as_the_winner_did_is_saved() -> None:
    last_batch_of_an_epoch = observed(16, 12)
    assert preset_mismatch(last_batch_of_an_epoch, observed(16, 16)) == ""


def test_another_accumulation_is_seen_in_the_settings_or_in_the_samples_of_a_step() -> None:
    winner = observed(16, 16, **{ACCUMULATION: 1})
    assert "accumulation" in preset_mismatch(observed(16, 128, **{ACCUMULATION: 8}), winner)
    assert preset_mismatch(observed(16, 128), observed(16, 16)) == ("it trains with 128 samples per step instead of 16")


def test_a_preset_that_does_not_run_is_not_saved() -> None:
    failed = Measurement(outcome="failed", seconds=1.0, sentence="No such file.")
    assert preset_mismatch(ObservedTraining(failed, {}), observed(16, 16)) == "its run ended as failed: No such file."


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
    runner = ListedCards([killed, measured(7.0)])
    assert run_preset(request, runner, TrialCallbacks()).throughput == 7.0
