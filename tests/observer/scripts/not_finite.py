"""Trains a small transformer with a causal mask of -inf, until something else is not finite.

`not_finite.py KIND FOLDER`, which gets a checkpoint an epoch.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

KIND, FOLDER = sys.argv[1], Path(sys.argv[2])
AT = 7
ROWS, BATCH, LENGTH, WIDTH = 64, 4, 6, 8
step = 0


class TimesInfinity(torch.autograd.Function):
    """The same forward; the gradient is infinite."""

    @staticmethod
    def forward(_: Any, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.clone()

    @staticmethod
    def backward(_: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * math.inf


class Attention(nn.Module):
    """One head; its mask is not finite on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) / math.sqrt(WIDTH)
        scores = scores.masked_fill(hidden, -math.inf)
        return torch.softmax(scores, -1) @ self.value(x)


class Layer(nn.Module):
    """Attention and two linear layers."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.attention = Attention()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        is_bad = self.number == 2 and step >= AT
        if is_bad and KIND == "masked-row":
            hidden[0] = True
        x = self.norm(x + self.attention(x, hidden))
        inner = torch.relu(self.up(x))
        if is_bad and KIND == "fp16":
            inner = (inner.half() * 60000 * 4).float() / 240000
        if is_bad and (KIND == "backward" or (KIND == "accumulated" and step == AT)):
            inner = TimesInfinity.apply(inner)
        if is_bad and KIND == "sqrt":
            inner = inner + (inner - inner).sqrt()
        return x + self.dropout(self.down(inner))


class Model(nn.Module):
    """Four layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(2, WIDTH)
        self.layers = nn.ModuleList(Layer(number) for number in range(4))
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def main() -> None:
    """Two epochs; a checkpoint at each."""
    global step
    torch.manual_seed(0)
    inputs, labels = torch.randn(ROWS, LENGTH, 2), torch.randint(3, (ROWS,))
    if KIND == "row":
        inputs[41] = math.nan
    loader = DataLoader(TensorDataset(inputs, labels), BATCH, shuffle=True)
    model = Model()
    if KIND == "unused":
        model.unused = nn.Parameter(torch.tensor([math.inf]))
    options = {"lr": 1e30 if KIND == "rate" else 1e-3, "eps": 0.0 if KIND == "eps" else 1e-8}
    optimizer = torch.optim.Adam(model.parameters(), **options)
    scaled = KIND.startswith("scaler")
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    if KIND == "ranks":
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
        torch.manual_seed(dist.get_rank())
    shutil.rmtree(FOLDER / "old", ignore_errors=True)
    (FOLDER / "last.pt").unlink(missing_ok=True)
    for _ in range(2):
        for x, y in loader:
            step += 1
            rank = int(os.environ.get("RANK", "1"))
            if KIND == "ranks" and step == AT and rank == 1:
                (model.module if hasattr(model, "module") else model).layers[1].register_forward_pre_hook(
                    lambda _, given: given[0] + math.inf
                )
            with torch.autocast("cpu", torch.float16, enabled=scaled):
                probabilities = torch.softmax(model(x), -1)
                if KIND == "log" and step >= AT:
                    probabilities = probabilities * torch.tensor([1.0, 0.0, 1.0])
                loss = -probabilities.float().gather(1, y[:, None]).log().mean()
                if KIND == "unused" and step >= AT:
                    loss = loss + model.unused.sum()
                if KIND == "scaler" and step >= AT:
                    loss = loss + (model.head.weight.float().sum() * 0).sqrt()
            scaler.scale(loss).backward()
            if KIND != "accumulated" or step % 2 == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
            print("loss", loss.item().hex())
        torch.save({"model": model.state_dict(), "step": step}, FOLDER / "checkpoint.new")
        (FOLDER / "checkpoint.new").replace(FOLDER / "checkpoint.pt")
        with (FOLDER / "weights.pt").open("wb") as file:
            torch.save(model.state_dict(), file)


if __name__ == "__main__":
    main()
