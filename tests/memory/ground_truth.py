"""Measured peaks and what each way of estimating predicts for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import convert

from tests.gpu.cases import EVERY, Case, Measured, measured_from
from tuner_tui.core.json_struct import from_json
from tuner_tui.memory.closed_form import MemoryPhase, memory_phases
from tuner_tui.memory.device import Device
from tuner_tui.memory.known_shapes import known_shape, shape_from_config
from tuner_tui.memory.model_shape import ModelShape
from tuner_tui.memory.trace import MemoryTrace, phases_from_trace, trace_request
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings

RESULTS = Path(__file__).parent.parent / "gpu" / "results"
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

Way = Callable[[Case], float]
"""Tensor bytes at the peak of a case."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Shares by which estimates were off; below 0: too small."""

    shares: tuple[float, ...]

    def quantile(self, share: float) -> float:
        """Of the sizes of the errors."""
        return sorted(map(abs, self.shares))[min(len(self.shares) - 1, int(share * len(self.shares)))]

    def under(self, reserve: float) -> float:
        """The share of cases that took more than the estimate and the reserve on top of it."""
        return sum(1 / (1 + error) > 1 / (1 - reserve) for error in self.shares) / len(self.shares)


def results(path: Path) -> list[Measured]:
    """The results of one file, without those that ran out of memory."""
    measurements = [measured_from(measured) for measured in json.loads(path.read_text())["measured"]]
    return [outcome for outcome in measurements if outcome.problem is None]


def result_files(kind: str = "") -> list[Path]:
    """One file for each hardware that was measured."""
    return sorted((RESULTS / kind).glob("*.json"))


def device_of(path: Path) -> Device:
    """The kind of device a file is of; its capability is not needed for tensors."""
    return Device(not path.name.startswith("cpu"), (8, 0))


def settings_of(case: Case) -> Settings:
    """The case's settings."""
    return convert(case.settings, Settings)


def shape_of(case: Case) -> ModelShape:
    """The case's model."""
    task = convert({"task": case.task}, BuiltinJob).task
    shape_name = EVERY.get(case.model)
    shape = known_shape(case.model, task) if shape_name is None else shape_from_config(shape_name, case.model, task)
    assert shape is not None, case.model
    return shape


def highest(lines: Iterable[MemoryPhase], batch: int) -> float:
    """The peak of the moments at `batch`."""
    return max(line.bytes_at(batch) for line in lines)


def closed_form(device: Device) -> Way:
    """The closed form on `device`."""

    def way(case: Case) -> float:
        foreach = True if case.foreach else None
        return highest(memory_phases(shape_of(case), settings_of(case), device, foreach=foreach), case.batch)

    return way


def traced(device: Device, folder: Path) -> Way:
    """Tracing on `device`; models that a configuration gives are written to `folder`."""
    for name, config in EVERY.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "config.json").write_text(json.dumps({**config, **SPECIAL}))

    @cache
    def answer(question: str) -> dict[str, Any]:
        from tuner_tui.trainer.memory_tracer.tracer import trace_memory

        return trace_memory(json.loads(question), {})

    def way(case: Case) -> float:
        settings = settings_of(case)
        model = str(folder / case.model) if case.model in EVERY else case.model
        job = convert({"task": case.task, "model": model}, BuiltinJob)
        question = {**trace_request(job, settings, device), "foreach": case.foreach or device.on_gpu}
        trace = from_json(MemoryTrace, answer(json.dumps(question, sort_keys=True)))
        return highest(phases_from_trace(trace, settings, device, 1), case.batch)

    return way


def errors(way: Way, measured: Iterable[Measured]) -> Errors:
    """How far `way` was off."""
    return Errors(tuple(way(result.case) / peak - 1 for result in measured if (peak := result.peak_bytes)))


def series(measured: Iterable[Measured]) -> list[list[Measured]]:
    """Measurements that differ in the batch alone, four and more of them, smallest batch first."""

    def rest(measured: Measured) -> str:
        return str(
            {
                **measured.case.settings,
                "per_device_train_batch_size": 0,
                "of": (measured.case.model, measured.case.task, measured.case.foreach),
            }
        )

    ordered = sorted(measured, key=lambda measurement: (rest(measurement), measurement.case.batch))
    groups = [list(group) for _, group in groupby(ordered, key=rest)]
    return [group for group in groups if len(group) >= 4]
