"""Error of each way of estimating memory, on every hardware with measurements.

Run: `python -m tests.benchmarks.estimate_error [--without-tracing]`. The ground truth is in `tests/gpu/results`: the
peak of all tensors during three training steps and an evaluation. Without measurements: the closed form, tracing, and
what `accelerate estimate-memory` prints as "Training using Adam" for the same model and precision. After two
measurements: batches 4 and 12 of a series are known, and 24 is predicted by the fitted line and by the calibrated
estimate. Then the same for other architectures, with ground truth in `tests/gpu/results/families`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tests.gpu.cases import FAMILIES, HELD_OUT, UNSEEN, Case, Measured
from tests.memory.ground_truth import (
    Errors,
    Way,
    closed_form,
    device_of,
    errors,
    result_files,
    results,
    series,
    settings_of,
    shape_of,
    traced,
)
from tuner_tui.memory.calibration import MeasuredRun, calibrate
from tuner_tui.memory.device import Device
from tuner_tui.memory.estimate import RESERVE_SHARE, MemoryEstimate, estimate
from tuner_tui.memory.fit import PeakPoint, fit
from tuner_tui.memory.known_shapes import shape_from_config
from tuner_tui.settings.model import Settings

PROBES = slice(1, 3)
"""Known batches of a series 2, 4, 12, 24: like the tuner, not starting from 1."""
UNTRACEABLE = ("t5", "bart")
"""Models whose classifiers look for the end of a text, which a trace does not have."""
ACCELERATE_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
Foretelling = Callable[[list[Measured], Case], float | None]


def line(name: str, errors: Errors) -> str:
    """One row of the table."""
    if not errors.shares:
        return f"  {name:<42} –"
    return (
        f"  {name:<42} {len(errors.shares):4}  median {errors.quantile(0.5):6.2%}  p90 {errors.quantile(0.9):6.2%}  "
        f"worst {errors.quantile(1.0):6.1%}  "
        f"too small with {RESERVE_SHARE:.0%} reserve {errors.under(RESERVE_SHARE):6.2%}"
    )


@cache
def empty_model(model: str, task: str) -> Any:
    """The model on the meta device, as accelerate's command builds it."""
    from accelerate import init_empty_weights

    from tests.gpu.measure_memory import build_model
    from tuner_tui.trainer.job_file import JobArguments

    with init_empty_weights():
        return build_model(Case(model, task), JobArguments(task=task))


def accelerate_estimate(case: Case) -> float:
    """Result of `accelerate estimate-memory`, which depends neither on batch nor on settings."""
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    total, _ = calculate_maximum_sizes(empty_model(case.model, case.task))
    return float(max(estimate_training_usage(total, ACCELERATE_TYPES[case.precision]).values()))


def by_fit(probes: list[Measured], case: Case) -> float | None:
    """Prediction of the line through the probes, with forward and backward known apart from the optimizer step."""
    points = [
        PeakPoint(measured.case.batch, measured.peak_bytes or 0, measured.batch_peak_bytes) for measured in probes
    ]
    model = fit(points)
    return None if model is None else model.peak_bytes(case.batch)


def by_fit_with_margin(probes: list[Measured], case: Case) -> float | None:
    """The same plus its uncertainty, as the batch search uses it."""
    model = fit(
        [PeakPoint(measured.case.batch, measured.peak_bytes or 0, measured.batch_peak_bytes) for measured in probes]
    )
    if model is None:
        return None
    beyond = max(0, case.batch - model.largest_measured) * model.slope_uncertainty_bytes
    return model.peak_bytes(case.batch) + model.uncertainty_bytes + beyond


def by_calibration(device: Device) -> Foretelling:
    """The closed form calibrated by the probes."""

    def way(probes: list[Measured], case: Case) -> float | None:
        runs = [
            MeasuredRun("probe", settings_of(measured.case), tensor_bytes=measured.peak_bytes) for measured in probes
        ]
        shape, settings = shape_of(case), settings_of(case)

        def plain(changed: Settings) -> MemoryEstimate:
            return estimate(shape, changed, device)

        return calibrate(plain(settings), settings, True, runs, plain).tensor_bytes(case.batch)

    return way


def prediction_errors(way: Foretelling, measured: list[Measured]) -> Errors:
    """Errors of `way` for the largest batches of each series."""
    collected = []
    for group in series(measured):
        for larger in group[PROBES.stop :]:
            estimated_bytes, peak = way(group[PROBES], larger.case), larger.peak_bytes
            if estimated_bytes is not None and peak:
                collected.append(estimated_bytes / peak - 1)
    return Errors(tuple(collected))


def report(path: Path, folder: Path, tracing: bool) -> None:
    """Print the table of one hardware."""
    device, measured = device_of(path), results(path)
    held_out = [result for result in measured if result.case.model in HELD_OUT]
    print(f"{path.stem}: {len(measured)} trainings")
    ways: list[tuple[str, Way]] = [("closed form", closed_form(device))]
    ways += [("traced", traced(device, folder))] if tracing else []
    ways += [("accelerate estimate-memory", accelerate_estimate)]
    for name, way in ways:
        print(line(name, errors(way, measured)), flush=True)
        print(line(f"{name}, models not looked at before", errors(way, held_out)), flush=True)
    print(line("two probes, fitted line", prediction_errors(by_fit, measured)))
    print(line("two probes, fitted line and its doubt", prediction_errors(by_fit_with_margin, measured)))
    print(line("two probes, corrected closed form", prediction_errors(by_calibration(device), measured)))


def report_families(path: Path, folder: Path, tracing: bool) -> None:
    """Print the table of other architectures: those used for development, and those scored once."""
    device, ways = device_of(path), []
    print(f"{path.stem}, other architectures")
    ways += [("traced", traced(device, folder))] if tracing else []
    for words, models in (("", FAMILIES), (", not looked at before", UNSEEN)):
        measurements = [measured for measured in results(path) if measured.case.model in models]
        with_shape = [
            outcome
            for outcome in measurements
            if shape_from_config(models[outcome.case.model], "", "causal-lm") is not None
        ]
        modelled = [measured for measured in with_shape if not shape_of(measured.case).approximates]
        near = [measured for measured in with_shape if shape_of(measured.case).approximates]
        print(line(f"closed form, own family{words}", errors(closed_form(device), modelled)))
        print(line(f"closed form, nearest family{words}", errors(closed_form(device), near)))
        for name, way in ways:
            traceable = [outcome for outcome in measurements if outcome.case.model not in UNTRACEABLE]
            print(line(f"{name}{words}", errors(way, traceable)), flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for path in result_files():
            report(path, Path(folder), "--without-tracing" not in sys.argv)
        for path in result_files("families"):
            report_families(path, Path(folder), "--without-tracing" not in sys.argv)


if __name__ == "__main__":
    main()
