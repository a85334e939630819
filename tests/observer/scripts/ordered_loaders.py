"""A loop in the idiom of PyTorch's examples on a CPU: neither loader is shuffled, nothing says which one trains."""

from __future__ import annotations

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
train = DataLoader(TensorDataset(torch.randn(24, 2), torch.randn(24, 1)), batch_size=4)
valid = DataLoader(TensorDataset(torch.randn(8, 2), torch.randn(8, 1)), batch_size=4)
planned = len(train) if "plan" in sys.argv else None
model = torch.nn.Linear(2, 1)
optimizer = None if "by-hand" in sys.argv else torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(2):
    batches = []
    for data, target in train:
        model.zero_grad()
        torch.nn.functional.mse_loss(model(data), target).backward()
        batches.append(len(data))
        if optimizer is not None:
            optimizer.step()
            continue
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.data.add_(parameter.grad, alpha=-0.1)
    print("train", batches, len(train), train.num_workers, train.prefetch_factor)
    with torch.no_grad():
        print("valid", [len(data) for data, _ in valid], valid.num_workers)
