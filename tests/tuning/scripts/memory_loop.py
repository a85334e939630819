"""A loop whose memory grows with its batch and whose steps cost some time once: `memory_loop.py BATCH`.

A larger batch is faster until it does not fit.
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PLACES, WIDTH = 2000, 128
"""A sample is a megabyte, and its activations are several."""
ONCE_S = 0.03


def main() -> None:
    data = TensorDataset(torch.arange(2048.0))
    loader = DataLoader(data, batch_size=int(sys.argv[1]), shuffle=True, drop_last=True)
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh())))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(10_000):
        for (seeds,) in loader:
            time.sleep(ONCE_S)
            inputs = seeds[:, None, None].expand(-1, PLACES, WIDTH)
            optimizer.zero_grad()
            model(inputs * 1e-3).mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main()
