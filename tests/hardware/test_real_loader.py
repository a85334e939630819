"""Roles of the processes of a real DataLoader, by each way of starting workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.gpu_reader import Clock
from tuner_tui.hardware.process_sampler import ProcessSampler

SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset


class Zeros(Dataset):
    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        return torch.zeros(4)


if __name__ == "__main__":
    batches = iter(DataLoader(Zeros(), num_workers=2, multiprocessing_context=sys.argv[1]))
    next(batches)
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.train
@pytest.mark.parametrize(
    "start", ["fork", *(pytest.param(start, marks=pytest.mark.full) for start in ("spawn", "forkserver"))]
)
def test_a_trainer_below_a_shell_has_two_workers(tmp_path: Path, start: str):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    shell = ["sh", "-c", '"$0" "$@"; true', sys.executable, str(script), start]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        samples = ProcessSampler(Clock()).sample([process.pid])
        process.stdin.write("\n")
    roles = [sample.role for sample in samples]
    assert roles[:3] == ["main", "worker", "worker"]
    assert set(roles[3:]) == {"other"}
    assert next(sample for sample in samples if sample.pid == process.pid).role == "other"
