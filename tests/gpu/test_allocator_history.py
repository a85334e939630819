"""What held the memory of a real GPU, against what its allocator counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.observer.observed_process import observe
from tuner_tui.inspection.peak_memory import RecordedPeak, parse_peak
from tuner_tui.runs.launch.command import has_gpu

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(os.environ), reason="no NVIDIA GPU")]

SCRIPT = """
import sys, torch
from torch import nn
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
kept = []
for step in range(int(sys.argv[1])):
    out = model(torch.randn(int(sys.argv[2]), 1024, device="cuda"))
    loss = out.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    kept.append(out.detach().clone())
print("peak", torch.cuda.max_memory_allocated())
"""
WEIGHT_BYTES = 4 * (2 * 1024 * 4096 + 4096 + 1024)


def recorded(folder: Path, steps: int, batch: int) -> tuple[RecordedPeak, str]:
    """What a training of the script left, and its output."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    process = observe(folder, str(script), str(steps), str(batch), settings={"TUNER_MEMORY_HISTORY": "8"})
    return parse_peak((folder / "run" / "memory-rank0.json").read_bytes()), process.output


def test_the_parts_add_up_to_what_the_allocator_counts(tmp_path: Path) -> None:
    peak, output = recorded(tmp_path, 8, 4096)
    assert peak.peak_bytes == pytest.approx(int(output.split()[-1]), rel=0.02)  # which counts blocks of 512 bytes
    kinds = peak.breakdown.by(lambda part: part.kind)
    assert kinds["weights"] == WEIGHT_BYTES
    assert kinds["optimizer states"] == pytest.approx(2 * WEIGHT_BYTES, rel=0.01)
    assert peak.growth is not None
    assert peak.growth.step_bytes == pytest.approx(4096 * 1024 * 4, rel=0.2)
    assert peak.growth.line == "train.py:13"
    assert peak.outside_bytes


def test_an_allocation_that_fails_is_recorded(tmp_path: Path) -> None:
    peak, _ = recorded(tmp_path, 2, 2**32)
    assert peak.failed
    assert "asked for and refused" in peak.breakdown.by(lambda part: part.kind)
