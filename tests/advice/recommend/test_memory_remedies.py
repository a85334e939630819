"""Which setting removes a kind of memory, and how much the peak falls by it."""

from __future__ import annotations

from typing import Any

import pytest

from tuner_tui.advice.estimate import JobMemoryEstimator
from tuner_tui.advice.recommend.memory_breakdown import MemoryRemedy, breakdown_rows, memory_remedies
from tuner_tui.core.units import MIB
from tuner_tui.inspection.peak_memory import MemoryBreakdown, MemoryPart
from tuner_tui.memory.device import Device
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings

GPU = Device(True, (8, 0), 24 * 2**30)
KINDS = (
    "weights", "gradients", "optimizer states", "attention probabilities", "MLP", "logits and loss", "batch",
)  # fmt: skip


def remedies(model: str, phase: str = "loss", **settings: Any) -> dict[str, MemoryRemedy]:
    estimator = JobMemoryEstimator(BuiltinJob(task="causal-lm", model=model), GPU)
    return memory_remedies(estimator.closed_form, Settings(precision="bf16", max_length=512, **settings), KINDS, phase)


def saved(remedy: MemoryRemedy) -> int:
    assert remedy.saved_bytes is not None
    return remedy.saved_bytes


def test_what_a_full_training_of_gpt2_can_save() -> None:
    """124.4 million parameters, whose two moments take 8 bytes in fp32, and 2 × (1 + 4 / 256) in 8 bit; but for the
    50,257 × 768 of the embedding, which stay. 144 heads of 512 × 512 scores for 16 samples. 3 % of allocator's slack
    come on top."""
    offered = remedies("gpt2", per_device_train_batch_size=16, attn_implementation="eager")
    assert offered["optimizer states"].change == {"optim": "adamw_bnb_8bit"}
    assert saved(offered["optimizer states"]) == pytest.approx(
        1.03 * (124.4e6 - 50_257 * 768) * (8 - 2 * (1 + 4 / 256)), rel=0.02
    )
    assert offered["attention probabilities"].change == {"attn_implementation": "sdpa"}
    scores = 144 * 512 * 512 * 16
    assert 6 * scores <= saved(offered["attention probabilities"]) <= 12 * scores
    assert offered["gradients"].change == {"peft_method": "lora"}
    assert offered["MLP"].change == {"gradient_checkpointing": True}
    assert offered["logits and loss"].change == {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}
    assert offered.keys() == set(KINDS) - {"weights", "batch"}


def test_at_a_peak_in_the_evaluation_its_own_batch_is_what_can_be_smaller() -> None:
    settings = {"per_device_train_batch_size": 1, "per_device_eval_batch_size": 64, "eval_strategy": "steps"}
    offered = remedies("gpt2", "evaluation, eval batch 64", **settings)
    assert offered["logits and loss"].change == offered["MLP"].change == {"per_device_eval_batch_size": 32}
    assert saved(offered["MLP"]) > 2**30
    alone = remedies("gpt2", "evaluation, eval batch 1", **{**settings, "per_device_eval_batch_size": 1})
    assert not {"logits and loss", "MLP"} & alone.keys()


def test_under_adapters_the_frozen_weights_can_be_quantized() -> None:
    """The linear layers of LLaMA 1B have 973 million weights: 4 bytes and a 16-bit copy each, or half a byte in nf4."""
    offered = remedies("llama-1b", per_device_train_batch_size=4, peft_method="lora")
    assert offered["weights"].change == {"quantization": "nf4"}
    assert saved(offered["weights"]) == pytest.approx(973e6 * (4 + 2 - 0.5), rel=0.05)
    assert "gradients" not in offered


def test_what_is_removed_already_has_no_remedy() -> None:
    lean = remedies(
        "gpt2", per_device_train_batch_size=1, gradient_checkpointing=True, optim="adamw_bnb_8bit", peft_method="lora",
        quantization="nf4", attn_implementation="sdpa",
    )  # fmt: skip
    assert lean == {}


def test_a_saving_is_divided_among_the_parts_that_a_change_reduces() -> None:
    """Checkpointing saves 30 of the 40 MiB of two kinds; the optimizer of 8 bits more than its states at this peak."""
    sizes = [
        ("a", "MLP", 20),
        ("b", "MLP", 10),
        ("a", "attention", 10),
        ("", "weights", 9),
        ("", "optimizer states", 8),
    ]
    parts = [MemoryPart(module, kind, "fp32", size * MIB) for module, kind, size in sizes]
    traced = MemoryBreakdown("loss", tuple(parts))
    checkpointing = MemoryRemedy({"gradient_checkpointing": True}, 30 * MIB)
    remedies = {
        "MLP": checkpointing,
        "attention": checkpointing,
        "optimizer states": MemoryRemedy({"optim": "adamw_bnb_8bit"}, 27 * MIB),
        "weights": MemoryRemedy({"quantization": "nf4"}, None),
    }
    by_kind = {row.name: row.remedy and row.remedy.sentence for row in breakdown_rows(traced, remedies, "kind")}
    assert by_kind == {
        "MLP": "checkpointing on: 22.5 MiB",
        "attention": "checkpointing on: 7.5 MiB",
        "weights": "quantization nf4",
        "optimizer states": "optimizer adamw_bnb_8bit: 8.0 MiB",
    }
    by_module = [row.remedy and row.remedy.saved_bytes for row in breakdown_rows(traced, remedies, "module")]
    assert by_module == [15 * MIB, 7.5 * MIB, 7.5 * MIB, None, 8 * MIB]


def test_a_machine_without_a_gpu_has_no_cuda_context() -> None:
    assert GPU.context_name == "CUDA context"
    assert Device(False).context_name == "Python with torch"
