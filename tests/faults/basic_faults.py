"""A small training with one fault: `python basic_faults.py FAULT`. A step sleeps for 0.3 s, as if waiting for a GPU."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

FAULT = sys.argv[1]
OUTPUT = Path(sys.argv[2]) if len(sys.argv) > 2 else Path("output")
SAMPLES, BATCH, STEP_S, STEPS = 4800, 4, 0.3, 1200
WORKERS = {"starved-loader": 1, "too-many-workers": 12, "killed-worker": 2, "shm-limit": 2}


class Samples(Dataset[Any]):
    """Samples that cost nothing, unless the fault changes them."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if FAULT in ("slow-dataset", "starved-loader"):
            time.sleep(0.1)
        elif FAULT == "too-many-workers":
            burn(0.4)
        elif FAULT == "killed-worker" and index == 100:
            os.kill(os.getpid(), signal.SIGKILL)
        size = 1_000_000 if FAULT == "shm-limit" else 64
        return torch.randn(size), torch.randn(1)


def burn(seconds: float) -> None:
    """Keep a core busy for `seconds` of CPU time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


def plain() -> None:
    """A plain training loop."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    rate = 1e30 if FAULT == "nan" else 1e-3
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    loader = DataLoader(Samples(), batch_size=BATCH, num_workers=WORKERS.get(FAULT, 0))
    for step, (inputs, targets) in enumerate(loader, 1):
        loss = nn.functional.mse_loss(model(inputs[:, :64]), targets)
        optimizer.zero_grad()
        loss.backward()
        time.sleep(STEP_S)
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        fault_after(step, model)
        if step == STEPS:
            return


def fault_after(step: int, model: nn.Module) -> None:
    """Apply the fault between two steps."""
    if FAULT == "long-evaluation" and step % 5 == 0:
        model.eval()
        with torch.no_grad():
            for (inputs,) in DataLoader(TensorDataset(torch.randn(20 * BATCH, 64)), batch_size=BATCH):
                model(inputs)
                time.sleep(0.15)
        model.train()
    elif FAULT == "memory-limit" and step == 5:
        print(len([torch.empty(250_000_000) for _ in range(64)]))
    elif FAULT == "killed-trainer" and step == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    elif FAULT == "missing-package" and step == 1:
        __import__("surely_not_installed")


def with_trainer() -> None:
    """Hugging Face Trainer, on a disk that takes half a second per checkpoint."""
    from transformers import Trainer, TrainingArguments

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(64, 1)

        def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            time.sleep(STEP_S)
            return {"loss": nn.functional.mse_loss(self.line(inputs), labels)}

    def collate(batch: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
        return {
            "inputs": torch.stack([sample for sample, _ in batch]),
            "labels": torch.stack([two for _, two in batch]),
        }

    write = torch.save

    def slow(*args: Any, **kwargs: Any) -> None:
        time.sleep(0.5)
        write(*args, **kwargs)

    torch.save = slow
    arguments = TrainingArguments(
        str(OUTPUT), per_device_train_batch_size=BATCH, max_steps=STEPS, save_steps=5, save_total_limit=1,
        report_to="none", use_cpu=True, disable_tqdm=True, logging_steps=1,
    )  # fmt: skip
    Trainer(Model(), arguments, train_dataset=Samples(), data_collator=collate).train()


if __name__ == "__main__":
    torch.set_num_threads(1)
    (with_trainer if FAULT == "slow-checkpoint" else plain)()
