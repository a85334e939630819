"""Two models are trained one after the other, each with an optimizer and a number of epochs of its own."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCHES, EPOCHS = 4, (3, 5)


def train(epochs: int) -> None:
    loader = DataLoader(TensorDataset(torch.ones(BATCHES * 2, 1)), batch_size=2)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        for (inputs,) in loader:
            model(inputs).sum().backward()
            optimizer.step()


if __name__ == "__main__":
    train(EPOCHS[0])
    train(EPOCHS[1])
