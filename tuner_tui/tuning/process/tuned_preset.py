"""The winner of a tuning as a preset, with the figures measured before and after."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from tuner_tui.core.units import format_duration
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.store.record import redact_job
from tuner_tui.settings.errors import PresetExistsError
from tuner_tui.settings.job import BuiltinJob, Job
from tuner_tui.settings.model import Settings
from tuner_tui.settings.origin import Resolved
from tuner_tui.settings.presets.library import preset_path, save_preset
from tuner_tui.settings.presets.preset import HardwareRequirements, Preset
from tuner_tui.tuning.search.space import TUNED_FIELDS
from tuner_tui.tuning.trial import Measurement, TuningConclusion, format_peak_memory, format_throughput
from tuner_tui.tuning.trials.runner import with_tuned_origins


def tuned_preset(
    name: str, conclusion: TuningConclusion, start: Resolved, job: Job, inventory: Inventory, tuning: str
) -> Preset:
    """Return the preset of the winner, with all values that were chosen, recommended or tuned.

    `start` holds the settings that the command was seen to train with by itself: a value that equals a default of ours
    but not the command's own was tuned. The built-in job would be given other recommendations: it gets every tuned
    field.
    """
    resolved = with_tuned_origins(start, conclusion.winner)
    tuned = {name for name in TUNED_FIELDS if getattr(conclusion.winner, name) is not None}
    kept = resolved.chosen | tuned if isinstance(job, BuiltinJob) else resolved.chosen
    values = {field: getattr(conclusion.winner, field) for field in Settings.model_fields if field in kept}
    return Preset(
        name=name,
        about=" ".join(filter(None, [f"Tuned: {conclusion.sentence}", conclusion.learning_rate_note])),
        for_=_hardware(inventory),
        source=f"measured by tuning {tuning} on {inventory.hostname}",
        before=_figures(conclusion.start, conclusion.start_job_s, conclusion.job_steps),
        after=_figures(conclusion.best, conclusion.best_job_s, conclusion.job_steps),
        settings=values,
        job=redact_job(job),
    )


def save_tuned_preset(preset: Preset) -> Path:
    """Save the preset among the user's, with a number added to its name if that is taken. Raises `PresetError`."""
    for name in _numbered_names(preset.name):
        path = preset_path(name)
        try:
            save_preset(preset.model_copy(update={"name": name}), path)
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


def _numbered_names(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}-{number}" for number in count(2))


def _hardware(inventory: Inventory) -> HardwareRequirements:
    cards = {gpu.name for gpu in inventory.gpus}
    return HardwareRequirements(gpu=f"*{cards.pop()}*" if len(cards) == 1 else "none" if not cards else None)


def _figures(measured: Measurement | None, job_s: float | None, steps: int | None) -> str | None:
    """`1,234 tokens/s, 41 s for 400 steps, 1.2 GiB, run r007`; its own steps if the effective batch changed."""
    if measured is None or measured.throughput is None:
        return None
    steps = measured.job_steps or steps
    whole = "" if job_s is None or steps is None else f"{format_duration(job_s)} for {steps:,} steps"
    figures = [format_throughput(measured), whole, format_peak_memory(measured), f"run {measured.run_id}"]
    return ", ".join(filter(None, figures))
