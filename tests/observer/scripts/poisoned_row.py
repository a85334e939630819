"""Trains on rows of which one has a nan, cannot be loaded, or is nowhere: `poisoned_row.py LOOP ROW`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

ROWS, BATCH = 96, 8


class Rows(Dataset[Any]):
    """The rows by number; the bad one raises if it is negative."""

    def __init__(self, bad_row: int) -> None:
        self.inputs = torch.randn(ROWS, 4)
        self.fails_at = -bad_row
        if bad_row > 0:
            self.inputs[bad_row] = float("nan")

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.fails_at:
            raise ValueError("a broken sample")
        return self.inputs[index]


class Stream(IterableDataset[Any]):
    """The same without numbers."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from torch.randn(ROWS, 4)


class OwnBatches:
    """A batch sampler that draws tensors."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.randperm(ROWS).split(BATCH))

    def __len__(self) -> int:
        return ROWS // BATCH


def make_loader(loop: str, rows: Any) -> Any:
    """The loader of this kind of loop."""
    if loop == "own-batches":
        return DataLoader(rows, batch_sampler=OwnBatches())
    if loop == "single":
        return DataLoader(rows, batch_size=None, shuffle=True)
    if loop == "stream":
        return DataLoader(Stream(), BATCH)
    if loop == "in-order":
        return DataLoader(TensorDataset(rows.inputs), BATCH)
    workers = 2 if loop in ("workers", "any-order") else 0
    order = {"in_order": False} if loop == "any-order" else {}
    return DataLoader(rows, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0, **order)


def train_with_accelerate(model: nn.Module, optimizer: Any, loader: Any) -> None:
    """Fetches one batch ahead, and accumulates the gradients of two."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()


def main(loop: str, bad_row: int) -> None:
    """Two epochs."""
    torch.manual_seed(0)
    loader = make_loader(loop, Rows(bad_row))
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    if loop == "accelerate":
        return train_with_accelerate(model, optimizer, loader)
    for _ in range(2):
        for batch in loader:
            inputs = batch[0] if loop == "in-order" else batch
            model(inputs).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if loop == "evaluates":
                model.eval()
                with torch.no_grad():
                    model(next(iter(loader)))
                model.train()
    return None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
