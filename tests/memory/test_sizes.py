"""Bytes per parameter of optimizers and of quantized weights, by the documents of the libraries and by hand."""

from __future__ import annotations

import pytest
from msgspec import convert

from tuner_tui.core.units import MIB
from tuner_tui.memory.device import Device, ImportFootprint, RuntimeOverhead, interpolate, runtime_overhead
from tuner_tui.memory.fixed_memory import OptimizerBytes, embedding_states_bytes, optimizer_bytes, quantized_bytes
from tuner_tui.settings.model import Settings

EIGHT_BIT = 1 + 4 / 256


@pytest.mark.parametrize(
    ("name", "together", "weight_bytes", "expected"),
    [
        # PyTorch: two states of the weights' dtype; `foreach` takes the square roots of all second moments at once.
        ("adamw_torch", True, 4, OptimizerBytes(8, temporary=4)),
        ("adamw_torch", False, 4, OptimizerBytes(8, largest=8)),
        ("adamw_torch", True, 2, OptimizerBytes(4, temporary=2)),
        ("adamw_torch_fused", True, 4, OptimizerBytes(8)),
        ("adamw_torch_fused", False, 2, OptimizerBytes(4)),
        ("sgd", True, 4, OptimizerBytes(0)),
        # bitsandbytes: one byte a number and an fp32 scale for 256; Lion and RMSprop have one state.
        ("adamw_bnb_8bit", True, 4, OptimizerBytes(2 * EIGHT_BIT)),
        ("paged_adamw_8bit", True, 4, OptimizerBytes(2 * EIGHT_BIT)),
        ("lion_8bit", True, 4, OptimizerBytes(EIGHT_BIT)),
        ("rmsprop_bnb_8bit", True, 4, OptimizerBytes(EIGHT_BIT)),
        ("paged_adamw_32bit", True, 4, OptimizerBytes(8)),
        ("lion_32bit", True, 4, OptimizerBytes(4)),
        ("rmsprop_bnb", True, 4, OptimizerBytes(4)),
        ("ademamix", True, 4, OptimizerBytes(12)),  # a fast and a slow mean, and the second moment
        ("paged_ademamix_32bit", True, 4, OptimizerBytes(12)),
        ("ademamix_8bit", True, 4, OptimizerBytes(3 * EIGHT_BIT)),
        ("lomo", True, 4, OptimizerBytes(0)),
        ("adalomo", True, 4, OptimizerBytes(0)),
        # PyTorch: one state, and the same temporary tensors as AdamW's
        ("rmsprop", True, 4, OptimizerBytes(4, temporary=4)),
        ("adagrad", False, 4, OptimizerBytes(4, largest=8)),
        # torchao: two states of half a byte and a scale for 128 each; of a byte and a scale for 256
        ("adamw_torch_4bit", True, 4, OptimizerBytes(2 * (1 / 2 + 4 / 128))),
        ("adamw_torch_8bit", True, 4, OptimizerBytes(2 * EIGHT_BIT)),
        ("adafactor", True, 4, OptimizerBytes(0, largest=8)),
    ],
)
def test_bytes_of_an_optimizer(name: str, together: bool, weight_bytes: int, expected: OptimizerBytes) -> None:
    assert optimizer_bytes(name, together, weight_bytes) == expected


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("adamw_bnb_8bit", 1000 * (8 - 2 * EIGHT_BIT)),
        ("lion_8bit", 1000 * (4 - EIGHT_BIT)),
        ("adamw_torch_8bit", 0),  # torchao's, which Trainer leaves alone
        ("paged_adamw_32bit", 0),
        ("adamw_torch", 0),
    ],
)
def test_states_of_embeddings_stay_in_fp32(name: str, more: float) -> None:
    """transformers, `Trainer.create_optimizer`: `register_module_override(module, "weight", {"optim_bits": 32})`."""
    assert embedding_states_bytes(name, 1000) == pytest.approx(more)


@pytest.mark.parametrize(
    ("quantization", "double", "expected"),
    [
        ("int8", False, 1024 * 64 + 4 * 64),  # a byte each, an fp32 scale a row
        ("nf4", False, 1024 * 64 / 2 + 4 * 1024),  # half a byte each, an fp32 scale for 64
        ("nf4", True, 1024 * 64 / 2 + 1024 + 4 * 4),  # scales of a byte, an fp32 scale for 256 of them
        ("fp4", True, 1024 * 64 / 2 + 1024 + 4 * 4),
    ],
)
def test_bytes_of_a_quantized_matrix(quantization: str, double: bool, expected: float) -> None:
    settings = convert(
        {"quantization": quantization, "bnb_4bit_use_double_quant": double, "peft_method": "lora"}, Settings
    )
    assert quantized_bytes(settings, 1024 * 64, 64) == expected


@pytest.mark.parametrize(
    ("batch", "value"), [(1, 10.0), (2, 10.0), (3, 12.5), (4, 15.0), (6, 20.0), (8, 25.0), (9, 25.0)]
)
def test_between_measurements_the_value_is_on_the_line(batch: int, value: float) -> None:
    assert interpolate(((2, 10.0), (4, 15.0), (8, 25.0)), batch) == value


def test_slack_is_traced_or_an_assumed_share() -> None:
    assert RuntimeOverhead(0, 0.03, 20.0).slack(1000.0, 8) == 50.0
    traced = RuntimeOverhead(0, 0.03, 20.0, traced_slack=((4, 100.0), (8, 200.0)))
    assert [traced.slack(1000.0, batch) for batch in (1, 6, 8, 16)] == [100, 150, 200, 400]


MEASURED = ImportFootprint(resident_bytes=300 * MIB, private_bytes=900 * MIB)


@pytest.mark.parametrize(
    ("device", "context", "reserved", "context_doubt", "reserved_doubt"),
    [
        (Device(True), 500, 0, 0, 0),
        (Device(True, limited=True), 500, 0, 0, 0),
        (Device(False), 463 + 105, 0, 115, 0),
        (Device(False, limited=True), 463 + 105, 1065, 115, 250),
        (Device(False, limited=True, import_footprint=MEASURED), 300 + 105, 600, 115, 0),
        (Device(False, import_footprint=MEASURED), 300 + 105, 0, 115, 0),
    ],
)
def test_what_a_process_takes_besides_tensors(
    device: Device, context: int, reserved: int, context_doubt: int, reserved_doubt: int
) -> None:
    assert runtime_overhead(device).context_bytes == context * MIB
    assert runtime_overhead(device).reserved_bytes == reserved * MIB
    assert runtime_overhead(device).context_uncertainty_bytes == context_doubt * MIB
    assert runtime_overhead(device).reserved_uncertainty_bytes == reserved_doubt * MIB


@pytest.mark.parametrize(
    ("on_gpu", "capability", "flash"),
    [(True, (8, 0), True), (True, (7, 5), False), (True, None, True), (False, (8, 0), False), (True, (12, 0), True)],
)
def test_flash_attention_needs_an_ampere_gpu(on_gpu: bool, capability: tuple[int, int] | None, flash: bool) -> None:
    assert Device(on_gpu, capability).flash == flash
