"""A loop that prints nothing, on a stream of three batches to a step, and one number of epochs among its variables."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCHES, ACCUMULATION = 9, 3


def main() -> None:
    torch.manual_seed(0)
    args = argparse.Namespace(num_epochs=2)
    loader = DataLoader(TensorDataset(torch.ones(BATCHES * 2, 1)), batch_size=2)
    held_out = DataLoader(TensorDataset(torch.ones(8, 1)), batch_size=2)
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.25)
    for _ in range(args.num_epochs):
        for number, (inputs,) in enumerate(loader, 1):
            (((weight - inputs) ** 2).mean() / ACCUMULATION).backward()
            if number % ACCUMULATION == 0:
                optimizer.step()
        with torch.no_grad():
            for (inputs,) in held_out:
                weight * inputs


if __name__ == "__main__":
    main()
