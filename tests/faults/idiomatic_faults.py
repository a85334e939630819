"""Faults as in other people's code: `python idiomatic_faults.py FAULT`. A step computes for a fifth of a second."""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
import sys
import threading
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, STEP_S, STEPS = 8, 0.2, 80
Hook = Callable[[int, nn.Module], object]
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


def burn(seconds: float) -> None:
    """Keep a core busy for `seconds` of CPU time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


def nothing(step: int, model: nn.Module) -> None:
    return None


def fit(loader: Any = None, before: Hook = nothing, after: Hook = nothing) -> None:
    """A common training loop, calling `before` and `after` around each step."""
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (inputs, targets) in enumerate(loader or DataLoader(Samples(), batch_size=BATCH), 1):
        before(step, model)
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        burn(STEP_S)
        optimizer.step()
        print({"step": step, "loss": round(loss.item(), 4)}, flush=True)
        after(step, model)
        if step == STEPS:
            return


def every(steps: int, hook: Callable[[nn.Module], object]) -> Hook:
    """Call `hook` every `steps` steps."""
    return lambda step, model: hook(model) if step % steps == 0 else None


def generate(model: nn.Module) -> None:
    """Sample text token by token, without a loader and without eval()."""
    inputs = torch.randn(1, 64)
    with torch.inference_mode():
        for _ in range(30):
            model(inputs)
            burn(0.05)


def validate_some(model: nn.Module) -> None:
    """Stop reading a validation loader half-way, with gradients disabled only for the forward pass."""
    for number, (inputs, _) in enumerate(DataLoader(Samples(), batch_size=BATCH)):
        with torch.no_grad():
            model(inputs)
        burn(0.1)
        if number == 12:
            break


def validate_with_switch(model: nn.Module) -> None:
    """Disable gradients by `set_grad_enabled`, as in the tutorials, for part of the loader."""
    with torch.set_grad_enabled(False):
        for inputs, _ in itertools.islice(DataLoader(Samples(), batch_size=BATCH), 12):
            model(inputs)
            burn(0.1)


def shared_lock() -> None:
    """Workers that wait for one another, because only one may read a file at a time."""
    lock = multiprocessing.Lock()

    def spoil(index: int) -> None:
        with lock:
            time.sleep(0.15)

    fit(DataLoader(Samples(spoil), batch_size=BATCH, num_workers=3))


def decoding() -> None:
    """One worker that decodes more slowly than the training consumes."""
    fit(DataLoader(Samples(lambda index: burn(0.1)), batch_size=BATCH, num_workers=1))


def slow_save() -> None:
    """`torch.save` to a slow file object."""

    class Slow(BytesIO):
        def write(self, data: Any) -> int:
            time.sleep(0.01)
            return super().write(data)

    fit(after=every(3, lambda model: torch.save([torch.randn(9) for _ in range(60)], Slow())))


def pickled_save() -> None:
    """A checkpoint written by pickle, which neither torch nor safetensors sees."""

    def save(model: nn.Module) -> None:
        Path("own.pkl").write_bytes(pickle.dumps(model.state_dict()))
        time.sleep(1.0)

    fit(after=every(2, save))


def padded() -> None:
    """Batches padded to the longest possible sample."""
    embedding = nn.Embedding(300, 32)
    optimizer = torch.optim.Adam(embedding.parameters())

    def collate(rows: list[Batch]) -> dict[str, torch.Tensor]:
        mask = torch.zeros(len(rows), 256, dtype=torch.long)
        mask[:, :40] = 1
        return {"input_ids": mask.clone(), "attention_mask": mask}

    for batch in DataLoader(Samples(), batch_size=BATCH, collate_fn=collate):
        (embedding(batch["input_ids"]) * batch["attention_mask"][..., None]).pow(2).mean().backward()
        burn(STEP_S)
        optimizer.step()


def hanging_worker() -> None:
    """A sample on which a worker hangs."""
    spoil = lambda index: threading.Event().wait() if index == 160 else None  # noqa: E731
    fit(DataLoader(Samples(spoil), batch_size=BATCH, num_workers=1))


FAULTS: dict[str, Callable[[], None]] = {
    "generation": lambda: fit(after=every(4, generate)),
    "validation-broken-off": lambda: fit(after=every(5, validate_some)),
    "validation-by-switch": lambda: fit(after=every(5, validate_with_switch)),
    "validation-at-the-top": lambda: fit(before=every(5, generate)),
    "metrics-each-step": lambda: fit(after=lambda step, model: burn(0.4)),
    "shared-lock": shared_lock,
    "decoding": decoding,
    "slow-save": slow_save,
    "pickled-save": pickled_save,
    "padded": padded,
    "hanging-worker": hanging_worker,
    "idioms-healthy": lambda: fit(),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    FAULTS[sys.argv[1]]()
