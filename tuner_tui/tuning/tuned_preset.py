"""The winner of a tuning as a preset, with the figures measured; it is run for a few steps before it is saved."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from tuner_tui.advice.situation import observed_values
from tuner_tui.core.units import format_duration, format_gib, format_rate
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.store.folder import RunFolder, runs_dir
from tuner_tui.runs.store.record import redact_job
from tuner_tui.settings.errors import PresetExistsError
from tuner_tui.settings.job import BuiltinJob, Job
from tuner_tui.settings.model import FIELDS, Resolved, format_value
from tuner_tui.settings.preset_file import HardwareRequirements, Preset, save_preset
from tuner_tui.settings.presets import preset_path
from tuner_tui.settings.resolve import LaunchOptions, resolve_training
from tuner_tui.tuning.search.space import TUNED_FIELDS
from tuner_tui.tuning.trial import Measurement, Trial, TrialProtocol, TuningConclusion
from tuner_tui.tuning.trial_gpus import NO_GPU_LEFT, GpuLostError, TrialGpus
from tuner_tui.tuning.trial_runner import TrialCallbacks, TrialRunner, with_tuned_origins

CHECK_PROTOCOL = TrialProtocol(least_s=0.0, most_s=1.0, evaluate=False)
"""A few steps: what is in effect is of interest, not how fast it is."""
MAX_BATCH_RATIO = 1.5
"""Ratio of samples in a step from which two trainings have different effective batches. The few steps of a check may
include the smaller last batch of an epoch."""


def values_in_effect(measurement: Measurement, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the settings that the observer reported from the run of `measurement`; none if the run is gone."""
    if measurement.run_id is None:
        return {}
    return observed_values(RunReader(RunFolder(runs_dir(environ) / measurement.run_id)).poll().state.in_effect)


def preset_request(path: Path, base: LaunchRequest) -> LaunchRequest:
    """Return the launch of the preset file `path`, with the command of `base`, whose secrets no preset holds.

    Raises `SettingsError`.
    """
    training = resolve_training(LaunchOptions(preset=str(path), project=None, default_job=base.job))
    return replace(base, resolved=training.resolved)


def run_preset(request: LaunchRequest, gpus: TrialGpus, callbacks: TrialCallbacks) -> Measurement:
    """Run the preset's training for a few steps, on a GPU that is still there. Raises `LaunchError`."""
    trial = Trial(number=0, purpose="confirm", settings=request.resolved.settings, reason="the saved preset")
    runner = TrialRunner(request, CHECK_PROTOCOL)
    for gpu in gpus.gpus:
        try:
            measurement = gpus.run(gpu, runner, trial, callbacks).measurement
            # A run that was ended from outside is made once more.
            return gpus.run(gpu, runner, trial, callbacks).measurement if measurement.passing else measurement
        except GpuLostError:
            continue
    raise LaunchError(NO_GPU_LEFT)


def preset_mismatch(
    preset: Measurement, winner: Measurement, preset_values: Mapping[str, Any], winner_values: Mapping[str, Any]
) -> str:
    """Return how the preset's training differs from the winner's; empty if it is the same.

    The values are those in effect in either run.
    """
    if preset.outcome != "measured":
        return f"its run ended as {preset.outcome}: {preset.sentence}"
    differing = [
        f"{FIELDS[name].label} {format_value(name, seen)} instead of {format_value(name, won)}"
        for name in TUNED_FIELDS
        if (seen := preset_values.get(name)) != (won := winner_values.get(name))
        and seen is not None
        and won is not None
    ]
    if other_data := preset.other_data(winner):
        return other_data[0].lower() + other_data[1:].rstrip(".")
    if preset.step_samples and winner.step_samples:
        ratio = preset.step_samples / winner.step_samples
        if not 1 / MAX_BATCH_RATIO < ratio < MAX_BATCH_RATIO:
            differing.append(f"{preset.step_samples:.0f} samples per step instead of {winner.step_samples:.0f}")
    return "" if not differing else f"it trains with {', '.join(differing)}"


def tuned_preset(
    name: str, conclusion: TuningConclusion, start: Resolved, job: Job, inventory: Inventory, tuning: str
) -> Preset:
    """Return the preset of the winner, with all values that were chosen, recommended or tuned.

    `start` holds the command's own settings, as observed: a value that equals a default of ours but not the command's
    own was tuned. The built-in job would be given other recommendations: it gets every tuned field.
    """
    resolved = with_tuned_origins(start, conclusion.winner)
    gpus = {gpu.name for gpu in inventory.gpus}
    tuned = {name for name in TUNED_FIELDS if getattr(conclusion.winner, name) is not None}
    kept = resolved.chosen | tuned if isinstance(job, BuiltinJob) else resolved.chosen
    values = {field: getattr(conclusion.winner, field) for field in FIELDS if field in kept}
    return Preset(
        name=name,
        about=" ".join(filter(None, [f"Tuned: {conclusion.sentence}", conclusion.learning_rate_note])),
        for_=HardwareRequirements(gpu=f"*{gpus.pop()}*" if len(gpus) == 1 else "none" if not gpus else None),
        source=f"measured by tuning {tuning} on {inventory.hostname}",
        before=_figures(conclusion.start, conclusion.start_job_s, conclusion.job_steps),
        after=_figures(conclusion.best, conclusion.best_job_s, conclusion.job_steps),
        settings=values,
        job=redact_job(job),
    )


def save_tuned_preset(preset: Preset) -> Path:
    """Save the preset among the user's, with a number added to its name if that is taken. Raises `PresetError`."""
    for name in chain([preset.name], (f"{preset.name}-{number}" for number in count(2))):
        path = preset_path(name)
        try:
            save_preset(structs.replace(preset, name=name), path)
        except PresetExistsError:
            continue
        return path
    raise AssertionError("unreachable: the names are infinite")


def tuned_preset_name(preset: str | None, job: Job) -> str:
    """Return the default name of a tuned preset, such as `demo-tuned` or `train-tuned`."""
    words = getattr(job, "command", ())
    script = next((Path(word).stem for word in words if word.endswith((".py", ".yaml", ".yml"))), None)
    base = Path(preset).stem if preset else script or (Path(words[0]).name if words else "training")
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", base).strip("-._") or "training"
    return f"{plain.removesuffix('-tuned')[:60]}-tuned"


def _figures(measured: Measurement | None, job_s: float | None, steps: int | None) -> str | None:
    """`1,234 tokens/s, 41 s for 400 steps, 1.2 GiB, run r007`; its own steps if the effective batch changed."""
    if measured is None or (speed := measured.throughput) is None:
        return None
    unit, steps = "samples/s" if measured.tokens_s is None else "tokens/s", measured.job_steps or steps
    figures = [f"{format_rate(speed)} {unit}"]
    figures += [] if job_s is None or steps is None else [f"{format_duration(job_s)} for {steps:,} steps"]
    figures += [] if measured.peak_bytes is None else [format_gib(measured.peak_bytes, 2)]
    return ", ".join([*figures, f"run {measured.run_id}"])
