"""The meters count known allocations exactly, and a training is measured as before."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.gpu.cases import Case, Measured, cases, measured_from
from tests.late_module import late_module

torch, transformers = late_module("torch"), late_module("transformers")
measure_memory, meters = late_module("tests.gpu.measure_memory"), late_module("tests.gpu.meters")


@cache
def results_on_cpu() -> dict[Case, Measured]:
    paths = Path(__file__).parent.glob("results/cpu-*.json")
    return {result.case: result for path in paths for result in measure_memory.read_results(path)}


def test_every_allocation_is_counted_in_its_phase() -> None:
    meter = meters.CpuMeter()
    with meter.measuring():
        meter.enter("batch")
        kept = torch.empty(1000)
        torch.empty(5000)
        meter.enter("step")
        torch.empty(64, dtype=torch.float64)
        meter.enter("outside")
        del kept
    peaks = meter.peaks()
    assert (peaks["batch"], peaks["step"]) == (24_000, 4_512)


def test_what_was_there_before_is_left_out() -> None:
    before = torch.empty(100_000)
    meter = meters.CpuMeter()
    with meter.measuring():
        meter.enter("batch")
        torch.empty(10)
    assert meter.peaks()["batch"] == 40
    assert len(before) == 100_000


def test_shared_weights_count_once() -> None:
    layer = torch.nn.Linear(10, 10, bias=False)
    second_layer = torch.nn.Linear(10, 10, bias=False)
    second_layer.weight = layer.weight
    assert meters.storage_bytes(torch.nn.ModuleList([layer, second_layer])) == 400


@pytest.mark.full
@pytest.mark.train
@pytest.mark.parametrize("task", ["classification", "causal-lm"])
def test_a_training_takes_what_it_took_before(task: str) -> None:
    case = Case("tiny", task, 8, 64, eval_batch=8)
    with measure_memory.quiet():
        measured = measure_memory.measure(case, "cpu", meters.CpuMeter())
    recorded = results_on_cpu()[case]
    for name in ("weights_bytes", "first_bytes", "batch_peak_bytes", "step_peak_bytes", "evaluation_peak_bytes"):
        assert getattr(measured, name) == pytest.approx(getattr(recorded, name), rel=0.02), name


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    result = replace(next(iter(results_on_cpu().values())), problem="out of memory", driver_bytes=7)
    measure_memory.write_results(tmp_path / "x.json", "cpu", [result])
    assert measure_memory.read_results(tmp_path / "x.json") == [result]
    assert measured_from(result.as_json()) == result


def test_a_gpu_is_measured_on_every_kind_of_model_and_setting() -> None:
    on_gpu = cases("gpu")
    assert {case.model for case in on_gpu} == {"bert-base", "bert-large", "gpt2", "llama-1b"}
    assert {case.precision for case in on_gpu} == {"fp32", "fp16", "bf16"}
    assert {case.adapter for case in on_gpu} == {"none", "lora", "dora"}
    assert len({case.settings["optim"] for case in on_gpu}) >= 3


def test_the_processor_was_measured() -> None:
    assert measure_memory.file_of("cpu").parent.name == "results"
    assert len(results_on_cpu()) >= 0.75 * len(cases("cpu"))
