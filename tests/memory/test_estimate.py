"""What the closed form knows: which setting takes more, which less, and what fits."""

from __future__ import annotations

import timeit
from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from tests.memory.shapes import BERT, GPT2, LLAMA_1B
from tuner_tui.core.units import MIB
from tuner_tui.memory.closed_form import MemoryPhase
from tuner_tui.memory.device import Device, RuntimeOverhead
from tuner_tui.memory.estimate import RESERVE_SHARE, MemoryEstimate, estimate
from tuner_tui.memory.fixed_memory import optimizer_bytes
from tuner_tui.memory.parameter_counts import count_parameters
from tuner_tui.settings.dialects.hf import OPTIMIZERS
from tuner_tui.settings.model import Settings

GIB = 2**30
GPU = Device(True, (8, 0), 24 * GIB)


def of(shape: Any = BERT, device: Device = GPU, processes: int = 1, **settings: Any) -> MemoryEstimate:
    values = {"per_device_train_batch_size": 16, "max_length": 256, **settings}
    return estimate(shape, convert(values, Settings), device, processes)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ({"per_device_train_batch_size": 8}, {}),
        ({"max_length": 128}, {}),
        ({"precision": "bf16"}, {}),
        ({"gradient_checkpointing": True}, {}),
        ({"peft_method": "lora"}, {}),
        ({"peft_method": "lora"}, {"peft_method": "dora"}),
        ({"peft_method": "lora", "lora_r": 4}, {"peft_method": "lora", "lora_r": 256}),
        ({}, {"attn_implementation": "eager"}),
        ({"optim": "adamw_bnb_8bit"}, {}),
        ({"optim": "sgd"}, {"optim": "adamw_bnb_8bit"}),
        ({"optim": "adamw_torch_fused", "per_device_train_batch_size": 1}, {"per_device_train_batch_size": 1}),
        ({}, {"gradient_accumulation_steps": 4}),
    ],
)
def test_what_takes_less(less: dict[str, Any], more: dict[str, Any]) -> None:
    assert of(**less).total_bytes < of(**more).total_bytes


def test_adamw_in_fp32_takes_sixteen_bytes_a_parameter_and_four_more_in_its_step() -> None:
    parts, trained = of(per_device_train_batch_size=1, max_length=8).parts, count_parameters(BERT, Settings()).total
    assert (parts.weights, parts.gradients, parts.optimizer) == (4 * trained, 4 * trained, 8 * trained)
    assert parts.activations == pytest.approx(4 * trained)
    assert of(per_device_train_batch_size=1, max_length=8).peak_phase == "optimizer step"


def test_the_peak_of_a_language_model_is_at_its_logits() -> None:
    estimated = of(
        LLAMA_1B, precision="bf16", optim="adamw_torch_fused", per_device_train_batch_size=8, max_length=1024
    )
    assert estimated.peak_phase == "loss"
    assert estimated.parts.activations > 12 * 128_256 * 8 * 1024


def test_several_processes_keep_their_gradients_twice() -> None:
    single, two = of(), of(processes=2)
    assert two.total_bytes - single.total_bytes >= 4 * count_parameters(BERT, Settings()).total


def test_evaluation_can_set_the_peak() -> None:
    estimated = of(GPT2, optim="sgd", per_device_train_batch_size=1, per_device_eval_batch_size=64, max_length=1024)
    assert estimated.peak_phase == "evaluation, eval batch 64"


def test_a_training_without_evaluation_has_none_in_its_peak() -> None:
    large: dict[str, Any] = {"per_device_eval_batch_size": 64, "eval_strategy": "no", "optim": "sgd"}
    single, three = (of(GPT2, per_device_train_batch_size=batch, **large) for batch in (1, 3))
    assert single.total_bytes < three.total_bytes
    assert "evaluation" not in single.peak_phase


@pytest.mark.parametrize(
    ("gib", "verdict"), [(80, "fits"), (1.05, "too large"), (None, "unknown")], ids=["80", "1", "unknown"]
)
def test_the_verdict(gib: float | None, verdict: str) -> None:
    capacity = None if gib is None else int(gib * GIB)
    assert of(device=replace(GPU, capacity_bytes=capacity)).verdict == verdict


def test_between_fitting_and_not_it_is_tight() -> None:
    estimated = of()
    for capacity in (estimated.total_bytes, estimated.high_bytes):
        assert replace(estimated, capacity_bytes=capacity).verdict == "tight"
    for capacity in (estimated.low_bytes + 1, estimated.total_bytes - 1):
        assert replace(estimated, capacity_bytes=capacity).verdict == "too large"


def test_the_largest_batch_fits_and_the_next_does_not() -> None:
    estimated = of()
    largest = estimated.largest_batch()
    assert largest is not None
    assert largest > 16
    limit = 24 * GIB * (1 - RESERVE_SHARE)
    high, next_high = (estimated.peak_bytes(batch) * (1 + estimated.uncertainty) for batch in (largest, largest + 1))
    assert high <= limit < next_high
    assert of(device=replace(GPU, capacity_bytes=GIB)).largest_batch() == 0
    assert of(device=Device(True)).largest_batch() is None


def test_the_peak_as_floor_and_line_is_the_same_where_it_is_used() -> None:
    estimated = of()
    for batch in (16, 24, 32):
        assert estimated.peak.peak_bytes(batch) == pytest.approx(estimated.peak_bytes(batch), rel=0.01)
    assert estimated.peak.floor_bytes == pytest.approx(estimated.peak_bytes(1), rel=0.1)


@pytest.mark.parametrize("device", [GPU, Device(False, None, 24 * GIB, limited=True)], ids=["gpu", "limit"])
def test_the_parts_are_the_whole(device: Device) -> None:
    estimated = of(device=device)
    assert estimated.parts.total == pytest.approx(estimated.total_bytes, abs=4)
    assert estimated.parts.context >= 100 * MIB


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_has_a_figure(name: str) -> None:
    size_bytes = optimizer_bytes(name, True, 4)
    assert 0 <= size_bytes.kept <= 12
    assert 0 <= size_bytes.temporary <= 4


def test_the_line_goes_through_this_batch_and_the_largest_that_fits() -> None:
    """Phases of 100 + 10 b and 40 + 20 b bytes, and a step of 150; the first is higher below 6 samples."""
    phases = tuple(MemoryPhase(name, base, 0, 0, 0, slope) for name, base, slope in (("a", 100, 10), ("b", 40, 20)))
    step = MemoryPhase("step", 0, 0, 150, 0, 0)
    estimated = MemoryEstimate(2, (*phases, step), True, RuntimeOverhead(0, 0, 0), 0.0, "")
    # To twice the batch where the capacity is unknown: (2, 120) and (4, 140).
    assert (estimated.peak.slope_bytes, estimated.peak.base_bytes, estimated.peak.floor_bytes) == (10, 100, 150)
    # 640 bytes and 5 % are room for 30 samples: (2, 120) and (30, 640).
    fitting = replace(estimated, capacity_bytes=674)
    assert fitting.largest_batch() == 30
    slope = (640 - 120) / 28
    assert (fitting.peak.slope_bytes, fitting.peak.base_bytes) == pytest.approx((slope, 120 - 2 * slope))
    assert replace(fitting, samples=12).largest_batch() == 12
    # 30 bytes less for what is uncertain leave 610; a tenth leaves 582.
    assert replace(fitting, overhead=RuntimeOverhead(0, 0, 0, 30)).largest_batch() == 28
    assert replace(fitting, uncertainty=0.1).largest_batch() == 27
    # 2,000 bytes less 5 % are 1,900, exactly what 93 samples take.
    assert replace(estimated, capacity_bytes=2000).largest_batch() == 93


@pytest.mark.alone
def test_it_is_quick_enough_for_every_keystroke() -> None:
    assert min(timeit.repeat(of, number=20, repeat=5)) / 20 < 0.001


def test_the_line_of_a_bent_peak_is_never_too_small_up_to_the_largest_that_fits() -> None:
    values: dict[str, Any] = {
        "precision": "bf16",
        "gradient_checkpointing": True,
        "optim": "adamw_torch_fused",
        "max_length": 512,
    }
    estimated = of(LLAMA_1B, replace(GPU, capacity_bytes=80 * GIB), per_device_train_batch_size=2, **values)
    largest = estimated.largest_batch()
    assert largest is not None
    for batch in range(2, largest + 1):
        assert estimated.peak.peak_bytes(batch) >= 0.999 * estimated.peak_bytes(batch)


def test_a_compiled_training_may_take_much_less_and_no_more() -> None:
    plain, compiled = of(), of(torch_compile=True)
    assert (compiled.total_bytes, compiled.high_bytes) == (plain.total_bytes, plain.high_bytes)
    assert compiled.low_bytes < 0.57 * plain.total_bytes < 0.9 * plain.low_bytes
    assert "torch.compile" in compiled.rests_on


def test_the_first_of_several_gpus_gathers_logits_and_gradients() -> None:
    values: dict[str, Any] = {"precision": "bf16", "optim": "adamw_torch_fused"}
    for batch in (1, 64):
        single, four = (
            of(GPT2, replace(GPU, gpu_count=gpus), per_device_train_batch_size=batch, **values) for gpus in (1, 4)
        )
        assert four.total_bytes > 1.05 * single.total_bytes
        assert four.uncertainty > single.uncertainty
        assert "DataParallel" in four.rests_on
