"""The estimate of a training that FSDP divides, held against PyTorch's own tracker of its memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from msgspec import convert

from tests.late_module import skip_without
from tuner_tui.memory.device import Device
from tuner_tui.memory.estimate import estimate
from tuner_tui.memory.known_shapes import shape_from_config
from tuner_tui.settings.distributed import Sharding
from tuner_tui.settings.model import Settings

PROCESSES = 4
SCRIPT = Path(__file__).with_name("fsdp_peaks.py")


def case(layers: int, hidden: int, vocab: int, batch: int, tokens: int, accumulated: int) -> dict[str, Any]:
    config = {
        "hidden_size": hidden, "intermediate_size": hidden * 11 // 4, "num_hidden_layers": layers,
        "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": vocab, "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    }  # fmt: skip
    return {"config": config, "batch": batch, "tokens": tokens, "accumulated": accumulated}


CASES = [case(4, 1024, 8000, 2, 512, 1), case(3, 2048, 16_000, 1, 512, 2)]


skip_without("transformers")


def test_the_estimate_is_near_what_pytorch_tracks() -> None:
    command = [sys.executable, str(SCRIPT), json.dumps(CASES), str(PROCESSES)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    tracked = json.loads(printed.splitlines()[-1])
    for measured, peak_bytes in zip(CASES, tracked, strict=True):
        shape = shape_from_config({**measured["config"], "model_type": "llama"}, "made up", "causal-lm")
        assert shape is not None
        values = {
            "precision": "bf16", "gradient_checkpointing": True, "optim": "adamw_torch_fused", "eval_strategy": "no",
            "max_length": measured["tokens"], "per_device_train_batch_size": measured["batch"],
            "gradient_accumulation_steps": measured["accumulated"],
        }  # fmt: skip
        settings, device = convert(values, Settings), Device(True, (8, 0))
        expected = estimate(shape, settings, device, PROCESSES, sharding=Sharding("fsdp", 3))
        assert -0.05 <= expected.tensor_bytes(measured["batch"]) / peak_bytes - 1 <= 0.2, measured
