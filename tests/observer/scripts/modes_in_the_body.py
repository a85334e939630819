"""A loop whose body sets the mode of the model, as in ignite: a batch is fetched before the mode changes."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCHES, SIZE = 3, 5, 4


def main() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train = DataLoader(TensorDataset(torch.randn(BATCHES * SIZE, 4)), batch_size=SIZE)
    held_out = DataLoader(TensorDataset(torch.randn(6, 4)), batch_size=2)

    def update(inputs: torch.Tensor) -> None:
        model.train()
        optimizer.zero_grad()
        model(inputs).mean().backward()
        optimizer.step()

    def evaluate(inputs: torch.Tensor) -> None:
        model.eval()
        with torch.no_grad():
            model(inputs)

    for _ in range(EPOCHS):
        for process, loader in ((update, train), (evaluate, train), (evaluate, held_out)):
            for (inputs,) in loader:
                process(inputs)


if __name__ == "__main__":
    main()
