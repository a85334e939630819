"""The parts of the peak by module and kind, traced on several architectures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from tests.late_module import skip_without
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.inspection.peak_memory import MemoryBreakdown, MemoryPart
from tuner_tui.memory.device import Device
from tuner_tui.memory.trace import estimate_from_trace, trace_breakdown, trace_cache_entry, trace_memory, trace_request
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings

pytestmark = pytest.mark.usefixtures("own_cache")

BF16_LLAMA = {
    "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 4096,
    "num_key_value_heads": 4, "intermediate_size": 1024, "max_position_embeddings": 256, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPU = Device(True, (8, 0), 2**34)
PYTHON = Interpreter(sys.executable, packages={"torch": "2.13.0", "transformers": "5.23.0"})


def traced(job: BuiltinJob, **settings: Any) -> MemoryBreakdown:
    return trace_breakdown(PYTHON, job, Settings(**settings), GPU)


def test_parts_add_up_by_any_key() -> None:
    parts = (
        MemoryPart("a.*", "MLP", "bf16", 5), MemoryPart("b", "MLP", "fp32", 4), MemoryPart("", "weights", "fp32", 7),
    )  # fmt: skip
    breakdown = MemoryBreakdown("evaluation", parts)
    assert breakdown.total == 16
    assert list(breakdown.by(lambda part: part.kind).items()) == [("MLP", 9), ("weights", 7)]
    assert breakdown.by(lambda part: part.dtype) == {"fp32": 11, "bf16": 5}


def answer(phase: str, parts: list[tuple[str, str, int]], **settings: Any) -> MemoryBreakdown:
    """The breakdown of an answer in the cache with `parts` as kind, dtype and size: one of 64 x 100 16-bit weights."""
    job, chosen = BuiltinJob(task="causal-lm", model="tiny"), convert(settings, Settings)
    batches = {"batches": (chosen.per_device_train_batch_size,), "eval_batches": (chosen.per_device_eval_batch_size,)}
    question = trace_request(job, chosen, GPU) | {"by_module": True} | batches
    written = [{"module": "", "kind": kind, "dtype": dtype, "size": size} for kind, dtype, size in parts]
    trace_cache_entry(PYTHON, question).write({
        "phase": phase, "parts": written,
        "quantizable": {"total_bytes": 12_800, "numbers": 6_400, "rows": 64, "largest": 6_400},
    })  # fmt: skip
    return trace_breakdown(PYTHON, job, chosen, GPU)


LORA = [("weights", "bf16", 20_000), ("weights", "fp32", 4_000), ("MLP", "bf16", 900)]


@pytest.mark.parametrize(
    ("phase", "settings", "expected"),
    [
        ("batch", {}, {("weights", "bf16"): 20_000, ("weights", "fp32"): 4_000, ("MLP", "bf16"): 900}),
        # What is traced in bf16 is fp16, but for the weights as saved.
        (
            "batch", {"precision": "fp16"},
            {("weights", "bf16"): 20_000, ("weights", "fp32"): 4_000, ("MLP", "fp16"): 900},
        ),
        # Half a byte a number and 4 bytes for 64 of them; the largest matrix in 16 bit as it computes.
        (
            "batch", {"precision": "bf16", "quantization": "nf4"},
            {("weights as they compute", "bf16"): 12_800, ("weights", "bf16"): 7_200, ("weights", "fp32"): 4_000,
             ("weights", "nf4"): 3_600, ("MLP", "bf16"): 900},
        ),
        # A byte a number and 4 bytes a row.
        (
            "step", {"precision": "bf16", "quantization": "int8"},
            {("weights", "bf16"): 7_200, ("weights", "int8"): 6_656, ("weights", "fp32"): 4_000, ("MLP", "bf16"): 900},
        ),
    ],
)  # fmt: skip
def test_each_byte_has_the_dtype_in_which_it_is_kept(
    phase: str, settings: dict[str, Any], expected: dict[tuple[str, str], int]
) -> None:
    breakdown = answer(phase, LORA, peft_method="lora", **settings)
    assert list(breakdown.by(lambda part: (part.kind, part.dtype)).items()) == list(expected.items())


@pytest.mark.train
@pytest.mark.parametrize(
    ("task", "model", "settings"),
    [
        pytest.param(
            "causal-lm", "tiny", {"max_length": 256, "gradient_checkpointing": True, "per_device_train_batch_size": 32},
            id="checkpointed",
        ),
        pytest.param(
            "classification", "bert-base", {"max_length": 128, "per_device_train_batch_size": 32},
            id="bert", marks=pytest.mark.full,
        ),
    ],
)  # fmt: skip
def test_the_parts_add_up_to_the_traced_peak(task: Any, model: str, settings: dict[str, Any]) -> None:
    skip_without("transformers")
    job, chosen = BuiltinJob(task=task, model=model), Settings(**settings)
    breakdown = traced(job, **settings)
    estimate = estimate_from_trace(trace_memory(PYTHON, job, chosen, GPU), chosen, GPU)
    batch = chosen.per_device_train_batch_size
    assert breakdown.total == pytest.approx(estimate.tensor_bytes(batch), rel=0.02)
    kinds = breakdown.by(lambda part: part.kind)
    assert kinds["weights"] == pytest.approx(
        estimate.parts.weights - kinds.get("16-bit copies of weights", 0), rel=0.01
    )
    assert kinds["optimizer states"] == pytest.approx(estimate.parts.optimizer, rel=0.01)
    dtypes = breakdown.by(lambda part: (part.kind, part.dtype))
    of_parameters = {dtype for kind, dtype in dtypes if kind in ("weights", "gradients", "optimizer states")}
    assert of_parameters - {"int64"} == {"fp32"}, "the position ids of BERT are a buffer of integers"
    assert {dtype for kind, dtype in dtypes if kind == "16-bit copies of weights"} <= {"bf16"}


@pytest.mark.full
@pytest.mark.train
@pytest.mark.parametrize("quantization", ["none", "nf4"])
def test_an_adapter_on_16_bit_weights_has_fp32_gradients(quantization: str, tmp_path: Path) -> None:
    skip_without("peft")
    job = BuiltinJob(task="causal-lm", model=str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(BF16_LLAMA))
    settings = {
        "peft_method": "lora", "precision": "bf16", "quantization": quantization, "max_length": 64,
        "per_device_train_batch_size": 8,
    }  # fmt: skip
    breakdown = traced(job, **settings)
    chosen = convert(settings, Settings)
    estimate = estimate_from_trace(trace_memory(PYTHON, job, chosen, GPU), chosen, GPU)
    assert breakdown.total == pytest.approx(estimate.tensor_bytes(8), rel=0.02)
    dtypes = breakdown.by(lambda part: (part.kind, part.dtype))
    assert {dtype for kind, dtype in dtypes if kind in ("gradients", "optimizer states")} == {"fp32"}
    # Two blocks: four matrices of 256 x 256 and three of 256 x 1024 each.
    linear = 2 * (4 * 256 * 256 + 3 * 256 * 1024)
    rest = 2 * 4096 * 256 + 5 * 256
    in_16_bit = rest if quantization == "nf4" else rest + linear
    assert dtypes["weights", "bf16"] == pytest.approx(2 * in_16_bit, rel=0.001)
    if quantization == "nf4":
        assert dtypes["weights", "nf4"] == linear * (0.5 + 4 / 64)


@pytest.mark.full
@pytest.mark.train
def test_the_probabilities_of_eager_attention_are_a_part() -> None:
    """GPT-2 under autocast keeps for each of 12 × 12 heads the softmax in fp32, its copy and dropout's mask and result:
    9 bytes a score, here 256 × 256 for 4 samples, and fewer than 4 more bytes of one block at once."""
    skip_without("transformers")
    job = BuiltinJob(task="causal-lm", model="gpt2")
    settings = {"max_length": 256, "precision": "bf16", "per_device_train_batch_size": 4}
    whole = traced(job, **settings, attn_implementation="eager")
    chosen = convert({**settings, "attn_implementation": "eager"}, Settings)
    estimate = estimate_from_trace(trace_memory(PYTHON, job, chosen, GPU), chosen, GPU)
    assert whole.total == pytest.approx(estimate.tensor_bytes(4), rel=0.02)
    eager = whole.by(lambda part: part.kind)
    scores = 12 * 12 * 4 * 256 * 256
    assert 7 * scores <= eager["attention probabilities"] <= 9.5 * scores
    lines = {part.line.partition(":")[0] for part in whole.parts if part.step_part == "forward"}
    assert {"modeling_gpt2.py", "activations.py"} <= lines, "of the model's code, not of torch"
    assert whole.by(lambda part: (part.kind, part.step_part))["weights", "loading"] == eager["weights"]
    fused = traced(job, **settings, attn_implementation="sdpa").by(lambda part: part.kind)
    assert fused.get("attention probabilities", 0) < 0.1 * scores
