"""Faults as in other people's code, in forms that are harder to detect: `python harder_faults.py FAULT`."""

from __future__ import annotations

import ctypes
import itertools
import multiprocessing
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

BATCH, STEP_S, STEPS = 4, 0.2, 80
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


class Stream(IterableDataset[Any]):
    """A slow stream, all of it from the first worker."""

    def __iter__(self) -> Iterator[Batch]:
        info = torch.utils.data.get_worker_info()
        while info is None or info.id == 0:
            time.sleep(0.15)
            yield torch.randn(64), torch.randn(1)


def burn(seconds: float) -> None:
    """Keep a core busy for `seconds` of CPU time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


def fit(
    loader: DataLoader[Any] | None = None,
    after: Hook = lambda step, model: None,
    tell: Callable[[int, float], object] = lambda step, loss: print({"step": step, "loss": loss}, flush=True),
    rate: float = 1e-3,
    work: Callable[[float], object] = burn,
) -> None:
    """A common training loop, calling `after` each step."""
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for step, (inputs, targets) in enumerate(loader or plain(), 1):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        work(STEP_S)
        optimizer.step()
        tell(step, round(loss.item(), 4))
        after(step, model)
        if step == STEPS:
            return


def plain(spoil: Callable[[int], object] = lambda index: None, **more: Any) -> DataLoader[Any]:
    return DataLoader(Samples(spoil), batch_size=BATCH, **more)


def every(steps: int, hook: Callable[[nn.Module], object]) -> Hook:
    """Call `hook` every `steps` steps."""
    return lambda step, model: hook(model) if step % steps == 0 else None


def leak_in_step() -> None:
    """Every step keeps tensors: the classic list of losses with their graphs."""
    kept: list[torch.Tensor] = []
    fit(after=lambda step, model: kept.append(torch.ones(40_000_000)), work=time.sleep)


def evaluate_a_list(model: nn.Module) -> None:
    """Evaluate batches that no loader made, with only eval() and no_grad()."""
    model.eval()
    with torch.no_grad():
        for _ in range(20):
            model(torch.randn(BATCH, 64))
            time.sleep(0.15)
    model.train()


def generate(model: nn.Module) -> None:
    """Sample text token by token, without a loader and without eval()."""
    inputs = torch.randn(1, 64)
    with torch.inference_mode():
        for _ in range(30):
            model(inputs)
            burn(0.05)


def validate_some(model: nn.Module) -> None:
    """Stop reading a validation loader half-way, with gradients disabled only for the forward pass."""
    for inputs, _ in itertools.islice(plain(), 13):
        with torch.no_grad():
            model(inputs)
        burn(0.1)


def validate_with_switch(model: nn.Module) -> None:
    """Disable gradients by `set_grad_enabled`, as in the tutorials, for part of the loader."""
    with torch.set_grad_enabled(False):
        for inputs, _ in itertools.islice(plain(), 12):
            model(inputs)
            burn(0.1)


def nan_in_a_bar() -> None:
    """The loss appears only in a progress bar."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    with tqdm(total=STEPS, desc="training") as bar:

        def tell(step: int, loss: float) -> None:
            bar.set_postfix(loss=loss)
            bar.update()

        fit(tell=tell, rate=1e30)


def differing_sample(index: int) -> None:
    """One sample that differs from the others."""
    if index == 60:
        raise KeyError("label")


def shared_lock() -> None:
    """Workers that wait for one another, because only one may read a file at a time."""
    lock = multiprocessing.Lock()

    def spoil(index: int) -> None:
        with lock:
            time.sleep(0.15)

    fit(plain(spoil, num_workers=3))


def slow_save() -> None:
    """`torch.save` to a slow file object."""

    class Slow(BytesIO):
        def write(self, data: Any) -> int:
            time.sleep(0.01)
            return super().write(data)

    fit(after=every(3, lambda model: torch.save([torch.randn(9) for _ in range(60)], Slow())))


def pickled_save(model: nn.Module) -> None:
    """A checkpoint written by pickle, which neither torch nor safetensors sees."""
    Path("own.pkl").write_bytes(pickle.dumps(model.state_dict()))
    time.sleep(1.0)


def padded() -> None:
    """Batches padded to the longest possible sample."""
    embedding = nn.Embedding(300, 32)
    optimizer = torch.optim.Adam(embedding.parameters())

    def collate(rows: list[Batch]) -> dict[str, torch.Tensor]:
        mask = torch.zeros(len(rows), 256, dtype=torch.long)
        mask[:, :40] = 1
        return {"input_ids": mask.clone(), "attention_mask": mask}

    for batch in plain(collate_fn=collate):
        (embedding(batch["input_ids"]) * batch["attention_mask"][..., None]).pow(2).mean().backward()
        burn(STEP_S)
        optimizer.step()


FAULTS: dict[str, Callable[[], None]] = {
    "leak-in-step": leak_in_step,
    "worker-memory": lambda: fit(plain(lambda index: index == 40 and torch.ones(1_000_000_000), num_workers=1)),
    "evaluation-of-lists": lambda: fit(after=every(5, evaluate_a_list)),
    "generation": lambda: fit(after=every(4, generate)),
    "validation-broken-off": lambda: fit(after=every(5, validate_some)),
    "validation-by-switch": lambda: fit(after=every(5, validate_with_switch)),
    "metrics-each-step": lambda: fit(after=lambda step, model: burn(0.4)),
    "slow-stream": lambda: fit(DataLoader(Stream(), batch_size=BATCH, num_workers=3)),
    "shared-lock": shared_lock,
    "nan-in-a-bar": nan_in_a_bar,
    "worker-raises": lambda: fit(plain(differing_sample, num_workers=2)),
    "hanging-worker": lambda: fit(plain(lambda index: index == 160 and threading.Event().wait(), num_workers=1)),
    "segmentation-fault": lambda: fit(after=lambda step, model: ctypes.string_at(0) if step == 6 else None),
    "full-disk": lambda: fit(
        after=every(1, lambda model: torch.save(torch.ones(1_000_000), Path(sys.argv[2], "a.pt")))
    ),
    "slow-save": slow_save,
    "pickled-save": lambda: fit(after=every(2, pickled_save)),
    "padded": padded,
    "stolen-cores": fit,
    "healthy-workers": lambda: fit(plain(num_workers=2), work=time.sleep),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    FAULTS[sys.argv[1]]()
