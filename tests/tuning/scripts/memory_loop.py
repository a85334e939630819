"""A loop whose memory grows with its batch and whose steps cost some time once: `memory_loop.py BATCH`.

A larger batch is faster until it does not fit. A step only waits and computes next to nothing, and the memory that its
samples take is not touched, so that a busy machine changes little.
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SAMPLE_BYTES = 20 * 2**20
ONCE_S, SAMPLE_S = 0.04, 0.001


def main() -> None:
    data = TensorDataset(torch.arange(2048.0))
    loader = DataLoader(data, batch_size=int(sys.argv[1]), shuffle=True, drop_last=True)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(10_000):
        for (seeds,) in loader:
            activations = torch.empty(len(seeds), SAMPLE_BYTES, dtype=torch.uint8)
            time.sleep(ONCE_S + SAMPLE_S * len(seeds))
            optimizer.zero_grad()
            model(seeds[:, None] * 1e-3).mean().backward()
            del activations
            optimizer.step()


if __name__ == "__main__":
    main()
