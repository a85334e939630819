"""Runs a tuned preset for a few steps and compares what is in effect with the winner's trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from tuner_tui.advice.effective_settings import observed_values
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.store.folder import RunFolder, runs_dir
from tuner_tui.settings.fields import FIELDS, format_value
from tuner_tui.settings.resolve import Sources, resolve_training
from tuner_tui.tuning.search.space import TUNED_FIELDS
from tuner_tui.tuning.trial import Measurement, Trial
from tuner_tui.tuning.trials.runner import TrialCallbacks, TrialReport
from tuner_tui.tuning.trials.trial_protocol import TrialProtocol

CHECK_PROTOCOL = TrialProtocol(least_s=0.0, most_s=1.0, evaluate=False)
"""A few steps: what is in effect is of interest, not how fast it is."""
MAX_BATCH_RATIO = 1.5
"""Ratio of samples in a step from which two trainings have different effective batches. The few steps of a check may
include the smaller last batch of an epoch."""
ATTEMPTS = 2
"""Runs of a preset whose training was ended from outside."""


class CheckRunner(Protocol):
    """The part of `TrialRunner` that a check uses."""

    def run(self, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
        """Run the trial to its end. Raises `LaunchError`."""


@dataclass(frozen=True, slots=True)
class ObservedTraining:
    """What a run was seen to do: its measurement, and the settings that the observer reported."""

    measurement: Measurement
    in_effect: Mapping[str, Any]

    @staticmethod
    def of(measurement: Measurement, environ: Mapping[str, str]) -> ObservedTraining:
        """Read what was in effect in the run of `measurement`; nothing if the run is gone."""
        if measurement.run_id is None:
            return ObservedTraining(measurement, {})
        folder = RunFolder(runs_dir(environ) / measurement.run_id)
        return ObservedTraining(measurement, observed_values(RunReader(folder).poll().state.in_effect))

    @property
    def step_samples(self) -> float | None:
        """Samples of an optimizer step over all ranks."""
        rate, step_s = self.measurement.samples_s, self.measurement.step_time_s
        return rate * step_s if rate and step_s else None


def preset_request(path: Path, base: LaunchRequest) -> LaunchRequest:
    """Return the launch of the preset file `path`, with the command of `base`, whose secrets no preset holds.

    Raises `SettingsError`.
    """
    training = resolve_training(Sources(preset=str(path), project=None, default_job=base.job))
    return replace(base, resolved=training.resolved)


def run_preset(request: LaunchRequest, runner: CheckRunner, callbacks: TrialCallbacks) -> Measurement:
    """Run the preset's training for a few steps. Raises `LaunchError`."""
    trial = Trial(number=0, purpose="confirm", settings=request.resolved.settings, reason="the saved preset")
    measurement = runner.run(trial, callbacks).measurement
    for _ in range(ATTEMPTS - 1):
        if measurement.passing:
            measurement = runner.run(trial, callbacks).measurement
    return measurement


def preset_mismatch(preset: ObservedTraining, winner: ObservedTraining) -> str:
    """Return how the preset's training differs from the winner's; empty if it is the same."""
    if preset.measurement.outcome != "measured":
        return f"its run ended as {preset.measurement.outcome}: {preset.measurement.sentence}"
    differing = [
        f"{FIELDS[name].label} {format_value(name, seen)} instead of {format_value(name, won)}"
        for name in TUNED_FIELDS
        if (seen := preset.in_effect.get(name)) != (won := winner.in_effect.get(name))
        and seen is not None
        and won is not None
    ]
    seen_samples, won_samples = preset.step_samples, winner.step_samples
    if seen_samples and won_samples:
        ratio = seen_samples / won_samples
        if not 1 / MAX_BATCH_RATIO < ratio < MAX_BATCH_RATIO:
            differing.append(f"{seen_samples:.0f} samples per step instead of {won_samples:.0f}")
    return "" if not differing else f"it trains with {', '.join(differing)}"
