"""Runs that were measured put the estimate right."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.memory.shapes import BERT
from tuner_tui.core.units import MIB
from tuner_tui.memory.calibration import (
    CALIBRATED_UNCERTAINTY,
    MeasuredEstimate,
    MeasuredRun,
    UnmeasuredBatch,
    calibrate,
    estimate_from_runs,
)
from tuner_tui.memory.closed_form import MemoryPhase
from tuner_tui.memory.device import (
    CPU_SLACK_SHARE,
    RESERVED_BYTES,
    RESERVED_UNCERTAINTY_BYTES,
    Device,
    ImportFootprint,
    runtime_overhead,
)
from tuner_tui.memory.estimate import CLOSED_FORM_UNCERTAINTY, MemoryEstimate, estimate, estimate_from_phases
from tuner_tui.settings.model import Settings

GPU, CPU = Device(True, (8, 0), 24 * 2**30), Device(False, None, 16 * 2**30)


def settings(batch: int = 16, **values: Any) -> Settings:
    return Settings(per_device_train_batch_size=batch, **values)


def estimate_on_gpu(changed: Settings) -> MemoryEstimate:
    return estimate(BERT, changed, GPU)


def on_cpu(changed: Settings) -> MemoryEstimate:
    return estimate(BERT, changed, CPU)


def run(name: str, changed: Settings, ratio: float, slack: float = 1.0) -> MeasuredRun:
    tensors = round(estimate_on_gpu(changed).tensor_bytes(changed.per_device_train_batch_size) * ratio)
    return MeasuredRun(name, changed, tensors, round(tensors * slack))


def fix(changed: Settings, *runs: MeasuredRun) -> MemoryEstimate:
    return calibrate(estimate_on_gpu(changed), changed, True, runs, estimate_on_gpu)


def test_one_run_scales_every_batch() -> None:
    estimated = fix(settings(64), run("r003", settings(16), 1.03))
    assert estimated.tensor_bytes(64) == pytest.approx(1.03 * estimate_on_gpu(settings(64)).tensor_bytes(64))
    assert "corrected by run r003: ×1.03" in estimated.rests_on
    assert estimated.uncertainty == CALIBRATED_UNCERTAINTY


def test_between_two_runs_the_ratio_goes_from_one_to_the_other() -> None:
    runs = run("r002", settings(48), 1.2), run("r001", settings(16), 1.0)
    assert [round(fix(settings(32), *runs).ratio(batch), 3) for batch in (8, 16, 32, 48, 96)] == [
        1.0, 1.0, 1.1, 1.2, 1.2,
    ]  # fmt: skip


@pytest.mark.parametrize(("measured", "taken"), [(0.8, 1.0), (1.1, 1.1)])
def test_what_was_seen_at_another_moment_raises_and_never_lowers(measured: float, taken: float) -> None:
    small = run("r001", settings(1), measured)
    assert estimate_on_gpu(settings(1)).peak_phase != estimate_on_gpu(settings(64)).peak_phase
    assert fix(settings(64), small).ratio(64) == pytest.approx(taken)
    assert fix(settings(1), small).ratio(1) == pytest.approx(measured)


def test_of_two_runs_of_one_batch_the_newer_counts() -> None:
    estimated = fix(settings(), run("r009", settings(), 1.1), run("r001", settings(), 2.0))
    assert estimated.ratio(16) == pytest.approx(1.1)


def test_the_measured_slack_takes_the_place_of_the_assumed_one() -> None:
    estimated = fix(settings(), run("r001", settings(), 1.0, slack=1.2))
    assert estimated.parts.slack == pytest.approx(0.2 * estimated.tensor_bytes(16), rel=1e-3)


@pytest.mark.parametrize(
    "other_settings",
    [
        {"max_length": 64}, {"precision": "bf16"}, {"optim": "sgd"}, {"gradient_checkpointing": True},
        {"peft_method": "lora"}, {"attn_implementation": "eager"}, {"gradient_accumulation_steps": 2},
    ],
)  # fmt: skip
def test_a_run_of_other_settings_says_nothing(other_settings: dict[str, Any]) -> None:
    assert fix(settings(), run("r001", settings(**other_settings), 1.5)) == estimate_on_gpu(settings())


def test_what_takes_no_memory_may_differ() -> None:
    assert fix(settings(), run("r001", settings(learning_rate=1e-3, seed=7), 1.5)) != estimate_on_gpu(settings())


def test_on_a_cpu_the_rest_of_the_process_is_what_was_measured() -> None:
    tensors, rest = on_cpu(settings(8)).tensor_bytes(8), 1200 * 2**20
    resident = round(tensors) + rest
    estimated = calibrate(
        on_cpu(settings()), settings(), False, [MeasuredRun("r1", settings(8), None, None, resident)], on_cpu
    )
    assert estimated.peak_bytes(8) == pytest.approx(resident, abs=4)
    assert estimated.parts.context == pytest.approx(rest - CPU_SLACK_SHARE * tensors, abs=4)
    assert "corrected by run r1: 1,200 MiB outside of tensors" in estimated.rests_on


@pytest.mark.parametrize(("tensors_mib", "resident_mib"), [(31, 584), (219, 934), (370, 997), (1694, 2593)])
def test_on_a_cpu_what_trainings_took_lies_within_the_uncertainty(tensors_mib: int, resident_mib: int) -> None:
    moment = MemoryPhase("forward", tensors_mib * MIB, 0, 0, 0, 0)
    estimated = estimate_from_phases((moment,), settings(), CPU, CLOSED_FORM_UNCERTAINTY, "measured tensors")
    assert estimated.low_bytes < resident_mib * MIB < estimated.high_bytes


def test_on_a_cpu_a_measured_run_leaves_little_uncertainty() -> None:
    first = on_cpu(settings())
    measured = calibrate(first, settings(), False, [MeasuredRun("r1", settings(), resident_bytes=2**33)], on_cpu)
    assert measured.uncertainty_bytes == round(measured.total_bytes * CALIBRATED_UNCERTAINTY)


@pytest.mark.parametrize(("tensors_mib", "private_mib"), [(31, 1649), (219, 1996), (370, 2070), (1694, 3651)])
@pytest.mark.parametrize("import_footprint", [None, ImportFootprint(463 * MIB, 1516 * MIB)])
def test_under_a_limit_what_is_reserved_counts(
    tensors_mib: int, private_mib: int, import_footprint: ImportFootprint | None
) -> None:
    moment = MemoryPhase("forward", tensors_mib * MIB, 0, 0, 0, 0)
    device = Device(False, None, private_mib * MIB, limited=True, import_footprint=import_footprint)
    estimated = estimate_from_phases((moment,), settings(), device, CLOSED_FORM_UNCERTAINTY, "measured tensors")
    assert estimated.low_bytes < private_mib * MIB < estimated.high_bytes
    assert estimated.verdict != "fits"
    assert replace(estimated, capacity_bytes=(private_mib - 1000) * MIB).verdict == "too large"


def test_what_is_reserved_stays_uncertain_where_only_resident_memory_was_measured() -> None:
    def limited(changed: Settings) -> MemoryEstimate:
        return estimate(BERT, changed, replace(CPU, limited=True))

    run = MeasuredRun("r1", settings(), resident_bytes=2**33)
    estimated = calibrate(limited(settings()), settings(), False, [run], limited)
    assert estimated.total_bytes == pytest.approx(2**33 + RESERVED_BYTES, abs=4)
    assert estimated.uncertainty_bytes > RESERVED_UNCERTAINTY_BYTES


def test_a_process_smaller_than_its_tensors_is_no_measurement() -> None:
    run_of_little = MeasuredRun("r1", settings(8), None, None, 1000)
    assert calibrate(on_cpu(settings()), settings(), False, [run_of_little], on_cpu) == on_cpu(settings())


MEBIBYTE = 2**20
HOST = Device(False, None, 8000 * MEBIBYTE)
GPU_DEVICE = Device(True, (8, 0), 24_000 * MEBIBYTE)
GIVEN = Settings()


def cpu_run(number: int, batch: int, mib: int, **settings: Any) -> MeasuredRun:
    changed = GIVEN.changed(per_device_train_batch_size=batch, **settings)
    return MeasuredRun(f"r{number:03d}", changed, resident_bytes=mib * MEBIBYTE)


def gpu_run(number: int, batch: int, reserved: int) -> MeasuredRun:
    settings = GIVEN.changed(per_device_train_batch_size=batch)
    return MeasuredRun(
        f"r{number:03d}", settings, tensor_bytes=reserved * MEBIBYTE - MEBIBYTE, reserved_bytes=reserved * MEBIBYTE
    )


def test_a_size_that_was_run_takes_what_its_newest_run_took() -> None:
    estimated = estimate_from_runs((cpu_run(3, 8, 1000), cpu_run(2, 8, 1500), cpu_run(1, 4, 900)), GIVEN, HOST)
    assert isinstance(estimated, MeasuredEstimate)
    assert (estimated.estimate.batch, estimated.estimate.total_bytes) == (8, 1000 * MEBIBYTE)
    assert estimated.estimate.verdict == "fits"
    assert estimated.estimate.rests_on == "measured by run r003"
    assert estimated.largest is None


def test_one_size_says_nothing_of_another() -> None:
    assert estimate_from_runs((cpu_run(1, 8, 1000),), GIVEN, HOST, 16) == UnmeasuredBatch(8, 1000 * MEBIBYTE, "r001")


def test_an_unknown_size_counts_only_where_none_is_asked_for() -> None:
    unknown_size = replace(cpu_run(1, 8, 1000), settings=replace(GIVEN, per_device_train_batch_size=0))
    estimated = estimate_from_runs((unknown_size,), GIVEN, HOST)
    assert isinstance(estimated, MeasuredEstimate)
    assert estimated.estimate.total_bytes == 1000 * MEBIBYTE
    assert estimate_from_runs((unknown_size,), GIVEN, HOST, 8) is None


def test_sizes_off_the_floor_tell_the_others_and_the_largest_that_fits() -> None:
    runs = tuple(cpu_run(n, batch, 400 + 100 * batch) for n, batch in enumerate((16, 8, 4), start=1))
    estimated = estimate_from_runs(runs, GIVEN, HOST, 32)
    assert isinstance(estimated, MeasuredEstimate)
    assert estimated.estimate.total_bytes == 3600 * MEBIBYTE
    assert estimated.estimate.rests_on == "fitted to 3 measured sizes, the newest from run r001"
    assert estimated.largest is not None
    assert 60 <= estimated.largest <= (8000 * 0.95 - 400) / 100


def test_a_limit_also_counts_what_libraries_reserve() -> None:
    estimated = estimate_from_runs((cpu_run(1, 8, 1000),), GIVEN, replace(HOST, limited=True))
    assert isinstance(estimated, MeasuredEstimate)
    assert estimated.estimate.total_bytes == 1000 * MEBIBYTE + RESERVED_BYTES


@pytest.mark.parametrize("on_gpu", [True, False])
def test_a_compiled_run_that_was_measured_leaves_no_possible_saving(on_gpu: bool) -> None:
    way = estimate_on_gpu if on_gpu else on_cpu
    compiled = settings(torch_compile=True)
    measured = MeasuredRun("r1", compiled, tensor_bytes=2**33, resident_bytes=2**33)
    estimated = calibrate(way(compiled), compiled, on_gpu, [measured], way)
    assert estimated.total_bytes - estimated.low_bytes == estimated.high_bytes - estimated.total_bytes


def test_on_a_gpu_the_context_is_added_to_what_the_allocator_held() -> None:
    estimated = estimate_from_runs((gpu_run(1, 8, 9000),), GIVEN, GPU_DEVICE)
    assert isinstance(estimated, MeasuredEstimate)
    assert estimated.estimate.total_bytes == 9000 * MEBIBYTE + runtime_overhead(GPU_DEVICE).context_bytes


def test_runs_with_other_settings_or_of_another_device_say_nothing() -> None:
    assert estimate_from_runs((cpu_run(1, 8, 1000, precision="bf16"),), GIVEN, HOST) is None
    assert estimate_from_runs((cpu_run(1, 8, 1000),), GIVEN, GPU_DEVICE) is None


def ran_out(number: int, batch: int, **figures: Any) -> MeasuredRun:
    return MeasuredRun(f"r{number:03d}", settings(batch), ran_out="gpu", **figures)


@pytest.mark.parametrize(
    ("batch", "runs", "verdict", "largest"),
    [
        (16, (ran_out(2, 16),), "too large", 15),
        (32, (ran_out(2, 16),), "too large", 15),
        (8, (ran_out(2, 16),), "fits", 15),
        (16, (run("r003", settings(16), 1.0), ran_out(2, 16)), "fits", None),  # a newer run trained with as much
        (16, (ran_out(3, 16), run("r002", settings(16), 1.0)), "too large", 15),
        (16, (ran_out(3, 32), ran_out(2, 16)), "too large", 15),
        (16, (ran_out(2, 16, limit_bytes=2**30),), "fits", None),  # with less memory than there is now
        (16, (ran_out(2, 16, limit_bytes=23 * 2**30),), "too large", 15),  # this GPU, as CUDA counts it
        (16, (replace(ran_out(2, 16), ran_out="host"),), "fits", None),
        (16, (replace(ran_out(2, 16), settings=settings(16, max_length=4096)),), "fits", None),
    ],
)
def test_what_ran_out_of_memory_here_is_not_said_to_fit(
    batch: int, runs: tuple[MeasuredRun, ...], verdict: str, largest: int | None
) -> None:
    judged = fix(settings(batch), *runs)
    assert judged.verdict == verdict
    assert (largest or 200) <= (judged.largest_batch() or 0) <= (largest or 300)
    assert ("ran out of memory with micro batch 16" in judged.rests_on) == (verdict == "too large")


def test_a_command_that_ran_out_of_memory_has_no_measured_peak() -> None:
    failed = replace(gpu_run(2, 16, 9000), ran_out="gpu")
    judged = estimate_from_runs((failed, gpu_run(1, 8, 9000)), GIVEN, GPU_DEVICE)
    assert isinstance(judged, MeasuredEstimate)
    assert (judged.estimate.verdict, judged.largest) == ("too large", 8)
    assert judged.estimate.total_bytes == GPU_DEVICE.capacity_bytes
    assert estimate_from_runs((failed,), GIVEN, GPU_DEVICE, 4) is None
