"""The parts of the peak by module and kind, traced on several architectures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.memory.breakdown import MemoryBreakdown, MemoryPart, trace_breakdown
from tuner_tui.memory.device import Device
from tuner_tui.memory.trace import estimate_from_trace, trace_memory
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings

CARD = Device(True, (8, 0), 2**34)
PYTHON = Interpreter(sys.executable, packages={"torch": "2.13.0", "transformers": "5.23.0"})


def traced(folder: Path, job: BuiltinJob, **settings: Any) -> MemoryBreakdown:
    return trace_breakdown(PYTHON, job, Settings(**settings), CARD, folder)


def test_parts_add_up_by_any_key() -> None:
    parts = (MemoryPart("a.*", "MLP", 5), MemoryPart("b", "MLP", 4), MemoryPart("", "weights", 7))
    found = MemoryBreakdown("evaluation", parts)
    assert found.total == 16
    assert list(found.by(lambda part: part.kind).items()) == [("MLP", 9), ("weights", 7)]


@pytest.mark.train
@pytest.mark.parametrize(
    ("task", "model", "settings"),
    [
        ("causal-lm", "gpt2", {"max_length": 128, "precision": "bf16", "attn_implementation": "eager"}),
        ("causal-lm", "tiny", {"max_length": 256, "gradient_checkpointing": True, "per_device_train_batch_size": 32}),
        ("classification", "bert-base", {"max_length": 128, "per_device_train_batch_size": 32}),
    ],
    ids=["gpt2", "checkpointed", "bert"],
)
def test_the_parts_add_up_to_the_traced_peak(task: Any, model: str, settings: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    job, chosen = BuiltinJob(task=task, model=model), Settings(**settings)
    found = traced(tmp_path, job, **settings)
    estimate = estimate_from_trace(trace_memory(PYTHON, job, chosen, CARD, cache_folder=tmp_path), chosen, CARD)
    batch = chosen.per_device_train_batch_size
    assert found.total == pytest.approx(estimate.tensor_bytes(batch), rel=0.02)
    kinds = found.by(lambda part: part.kind)
    assert kinds["weights"] == pytest.approx(
        estimate.parts.weights - kinds.get("16-bit copies of weights", 0), rel=0.01
    )
    assert kinds["optimizer states"] == pytest.approx(estimate.parts.optimizer, rel=0.01)


@pytest.mark.train
def test_the_probabilities_of_eager_attention_are_a_part(tmp_path: Path) -> None:
    """GPT-2 under autocast keeps for each of 12 × 12 heads the softmax in fp32, its copy and dropout's mask and result:
    9 bytes a score, here 256 × 256 for 4 samples, and fewer than 4 more bytes of one block at once."""
    pytest.importorskip("transformers")
    job = BuiltinJob(task="causal-lm", model="gpt2")
    settings = {"max_length": 256, "precision": "bf16", "per_device_train_batch_size": 4}
    eager = traced(tmp_path, job, **settings, attn_implementation="eager").by(lambda part: part.kind)
    scores = 12 * 12 * 4 * 256 * 256
    assert 7 * scores <= eager["attention probabilities"] <= 9.5 * scores
    fused = traced(tmp_path, job, **settings, attn_implementation="sdpa").by(lambda part: part.kind)
    assert fused.get("attention probabilities", 0) < 0.1 * scores
