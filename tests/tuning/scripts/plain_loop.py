"""A plain PyTorch loop as people write it: `plain_loop.py BATCH WORKERS [slow] [samples=N] [ignores] [ranks]`.

`slow`: putting a batch together takes a fifth of a second of sleep, so that a busy machine changes little.
`ignores`: the batch it is given is not what it takes.
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate


class Samples(Dataset):
    """Random vectors, made when they are asked for."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((32,), index / self.count), torch.tensor([float(index % 2)])


def collate_slowly(samples: list[tuple[torch.Tensor, torch.Tensor]]) -> list[torch.Tensor]:
    time.sleep(0.2)
    batch: list[torch.Tensor] = default_collate(samples)
    return batch


def main() -> None:
    words = sys.argv[3:]
    count = next((int(word.partition("=")[2]) for word in words if word.startswith("samples=")), 640)
    batch = 4 if "ignores" in words else int(sys.argv[1])
    collate = collate_slowly if "slow" in words else None
    loader = DataLoader(
        Samples(count), batch_size=batch, num_workers=int(sys.argv[2]), shuffle=True, collate_fn=collate
    )
    if "ranks" in words:
        torch.distributed.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
    if "ranks" in words:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(10_000):
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
