"""The same kinds of faults in forms that are harder to detect: `python subtle_faults.py FAULT`."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

BATCH, STEP_S, STEPS = 4, 0.3, 60
Batch = tuple[torch.Tensor, torch.Tensor]


class Samples(Dataset[Any]):
    """4,000 samples; `spoil` is called with the index of each."""

    def __init__(self, spoil: Callable[[int], object] = lambda index: None) -> None:
        self.spoil = spoil

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> Batch:
        self.spoil(index)
        return torch.randn(64), torch.randn(1)


class Stream(IterableDataset[Any]):
    """A slow stream, all of it from the first worker."""

    def __iter__(self) -> Iterator[Batch]:
        info = torch.utils.data.get_worker_info()
        while info is None or info.id == 0:
            time.sleep(0.15)
            yield torch.randn(64), torch.randn(1)


def train(
    loader: DataLoader[Any],
    after: Callable[[int, nn.Module], object] = lambda step, model: None,
    tell: Callable[[int, float], object] = lambda step, loss: print(f"step {step} loss {loss:.4f}", flush=True),
    rate: float = 1e-3,
    work: Callable[[], object] = lambda: time.sleep(STEP_S),
) -> None:
    """A common training loop."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for step, (inputs, targets) in enumerate(loader, 1):
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        work()
        optimizer.step()
        tell(step, loss.item())
        after(step, model)
        if step == STEPS:
            return


def plain(**more: Any) -> DataLoader[Any]:
    return DataLoader(Samples(), batch_size=BATCH, **more)


def leak_in_step() -> None:
    """Every step keeps tensors: the classic list of losses with their graphs."""
    kept: list[torch.Tensor] = []
    train(plain(), after=lambda step, model: kept.append(torch.ones(40_000_000)))


def numpy_memory() -> None:
    """A metric that collects everything in NumPy."""
    import numpy as np

    train(plain(), after=lambda step, model: np.ones(1_000_000_000) if step == 6 else None)


def bytes_memory() -> None:
    """Python runs out of memory, with an error that has no message."""
    train(plain(), after=lambda step, model: bytearray(8_000_000_000) if step == 6 else None)


def worker_memory() -> None:
    """A loader worker runs out of memory."""
    spoil = lambda index: torch.ones(1_000_000_000) if index == 40 else None  # noqa: E731
    train(DataLoader(Samples(spoil), batch_size=BATCH, num_workers=1))


def evaluation_of_lists() -> None:
    """Evaluate a list of batches: no loader, only eval() and no_grad()."""
    batches = [torch.randn(BATCH, 64) for _ in range(20)]

    def evaluate(step: int, model: nn.Module) -> None:
        if step % 5 == 0:
            model.eval()
            with torch.no_grad():
                for batch in batches:
                    model(batch)
                    time.sleep(0.15)
            model.train()

    train(plain(), after=evaluate)


def slow_collate() -> None:
    """Fast samples with a slow collate function."""

    def collate(samples: list[Batch]) -> Batch:
        time.sleep(0.4)
        return torch.stack([one for one, _ in samples]), torch.stack([two for _, two in samples])

    train(plain(collate_fn=collate))


def slow_stream() -> None:
    """A stream that only one of its three workers reads."""
    train(DataLoader(Stream(), batch_size=BATCH, num_workers=3))


def nan_in_a_bar() -> None:
    """The loss appears only in a progress bar."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    with tqdm(total=STEPS, desc="training") as bar:

        def tell(step: int, loss: float) -> None:
            bar.set_postfix(loss=loss)
            bar.update()

        train(plain(), tell=tell, rate=1e30)


def worker_raises() -> None:
    """One sample that differs from the others."""

    def spoil(index: int) -> None:
        if index == 60:
            raise KeyError("label")

    train(DataLoader(Samples(spoil), batch_size=BATCH, num_workers=2))


def worker_exits() -> None:
    """A library in a worker ends the process."""
    spoil = lambda index: os._exit(3) if index == 60 else None  # noqa: E731
    train(DataLoader(Samples(spoil), batch_size=BATCH, num_workers=2))


def segmentation_fault() -> None:
    """Native code crashes."""
    train(plain(), after=lambda step, model: ctypes.string_at(0) if step == 6 else None)


def full_disk() -> None:
    """A checkpoint on a disk of 1 MB."""
    train(plain(), after=lambda step, model: torch.save(torch.ones(1_000_000), Path(sys.argv[2], "last.pt")))


def stolen_cores() -> None:
    """A step that computes while other programs use the cores."""

    def compute() -> None:
        until = time.thread_time() + 0.15
        while time.thread_time() < until:
            sum(range(1000))

    train(plain(), work=compute)


def by_trainer(**values: Any) -> None:
    """Hugging Face Trainer with slow steps and evaluation batches."""
    from transformers import Trainer, TrainingArguments

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(64, 1)

        def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            time.sleep(STEP_S / 2)
            return {"loss": nn.functional.mse_loss(self.line(inputs), labels)}

    def collate(batch: list[Batch]) -> dict[str, torch.Tensor]:
        return {"inputs": torch.stack([one for one, _ in batch]), "labels": torch.stack([two for _, two in batch])}

    arguments = TrainingArguments(
        "output", per_device_train_batch_size=BATCH, max_steps=STEPS, save_strategy="no", report_to="none",
        use_cpu=True, disable_tqdm=True, logging_steps=1, **values,
    )  # fmt: skip
    few = torch.utils.data.Subset(Samples(), range(16 * BATCH))
    Trainer(Model(), arguments, train_dataset=Samples(), eval_dataset=few, data_collator=collate).train()


FAULTS: dict[str, Callable[[], None]] = {
    "leak-in-step": leak_in_step,
    "numpy-memory": numpy_memory,
    "bytes-memory": bytes_memory,
    "worker-memory": worker_memory,
    "evaluation-of-lists": evaluation_of_lists,
    "evaluation-by-trainer": lambda: by_trainer(eval_strategy="steps", eval_steps=4, per_device_eval_batch_size=BATCH),
    "slow-collate": slow_collate,
    "slow-stream": slow_stream,
    "nan-by-trainer": lambda: by_trainer(learning_rate=1e30, max_grad_norm=0.0, optim="sgd"),
    "nan-in-a-bar": nan_in_a_bar,
    "worker-raises": worker_raises,
    "worker-exits": worker_exits,
    "segmentation-fault": segmentation_fault,
    "optimizer-missing": lambda: by_trainer(optim="adamw_bnb_8bit"),
    "full-disk": full_disk,
    "stolen-cores": stolen_cores,
    "workers-healthy": lambda: train(plain(num_workers=2)),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    FAULTS[sys.argv[1]]()
