"""Trains with steps that are slow in the way that the first argument names; `plain` is not. With a number of steps as
the second argument it prints the losses. Without arguments a child trains for each line of the input, one at a time.
"""

import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch._dynamo  # imported by the first optimizer otherwise
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

KIND = sys.argv[1] if len(sys.argv) > 1 else ""
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 10**9
WORKERS = 2 if KIND == "slow-workers" else 0
WIDTH = 128


class Samples(Dataset[Tensor]):
    """Rows of noise that depend on their index only."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Tensor:
        if KIND in ("slow-loader", "slow-workers"):
            return decode(index)
        return torch.full((WIDTH,), (index % 17) / 17.0)


def decode(index: int) -> Tensor:
    """A sample that takes three milliseconds of pure Python."""
    until = time.perf_counter() + 0.003
    total = 0
    while time.perf_counter() < until:
        total += 1
    return torch.full((WIDTH,), (index % 17) / 17.0)


def pad_rows(rows: list[Tensor]) -> Tensor:
    """A collate function that searches for the longest row once for each value."""
    longest = 0
    for row in rows:
        for value in row.tolist() * 20:
            longest = max(longest, len(str(value)))
    return torch.stack(rows)


def read_rows(rows: list[Tensor]) -> Tensor:
    """A collate function that waits and computes nothing."""
    time.sleep(0.03)
    return torch.stack(rows)


class HeavyHead(nn.Module):
    """One layer that does nearly all of the work."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(WIDTH, 4096)
        self.narrow = nn.Linear(4096, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.narrow(torch.relu(self.wide(x.repeat(16, 1))))
        return out.reshape(16, -1, WIDTH).mean(0)


class TinyOperators(nn.Module):
    """A recurrence written element by element."""

    def forward(self, x: Tensor) -> Tensor:
        state = x[:, 0]
        for n in range(1, WIDTH):
            state = state * 0.9 + x[:, n].tanh() * 0.1
        return x + state[:, None]


class Net(nn.Module):
    """An encoder, something in the middle, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.middle = {"heavy-layer": HeavyHead, "tiny-operators": TinyOperators}.get(KIND, nn.Identity)()
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.middle(self.encoder(x)))
        return out


def python_loss(output: Tensor) -> Tensor:
    """A loss with a ranking that is computed in Python."""
    values = output.detach().flatten().tolist()
    inversions = 0
    for repeat in range(60):
        for first in range(len(values)):
            for second in range(first + 1, len(values)):
                inversions += values[first] * (repeat + 1) > values[second]
    return output.square().mean() * (1.0 + 0.0 * inversions)


def read_values(output: Tensor) -> float:
    """Reads a tensor value by value."""
    total = 0.0
    for _ in range(40):
        for n in range(output.shape[0]):
            total += output[n, 0].item()
    return total


def log_step(step: int, loss: Tensor, model: nn.Module, folder: str) -> None:
    """Writes a line, the weights as text and the weights themselves."""
    weights = {name: value.detach().flatten().tolist() for name, value in model.named_parameters()}
    Path(folder, "weights.json").write_text(json.dumps({"step": step, "loss": float(loss), **weights}))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    if KIND == "slow-optimizer":
        extra = [nn.Parameter(torch.randn(16)) for _ in range(300)]
        model.extra = nn.ParameterList(extra)
        for each in extra:
            each.grad = torch.ones(16)
        return torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False, fused=False)
    return torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    collate = {"slow-collate": pad_rows, "slow-disk": read_rows}.get(KIND)
    loader = DataLoader(Samples(), batch_size=32, num_workers=WORKERS, collate_fn=collate, shuffle=True)
    model = Net()
    optimizer = make_optimizer(model)
    folder = tempfile.mkdtemp()
    for step, batch in enumerate(loader):
        if step == STEPS:
            break
        output = model(batch)
        loss = python_loss(output) if KIND == "python-loss" else output.square().mean()
        if KIND == "reads-values":
            read_values(output)
        loss.backward()
        optimizer.step()
        for parameter in model.encoder.parameters():
            parameter.grad = None
        model.head.zero_grad()
        model.middle.zero_grad()
        if KIND == "slow-logging":
            log_step(step, loss, model, folder)
        if STEPS < 10**9:
            print("loss", loss.item().hex(), flush=True)


def train_in_children() -> None:
    """Print the process id of each child."""
    global KIND
    gc.freeze()  # else each child looks through all of torch for garbage, and copies it
    for line in sys.stdin:
        KIND = line.strip()
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            main()
            return
        os.wait()


if __name__ == "__main__":
    if KIND:
        main()
    else:
        train_in_children()
