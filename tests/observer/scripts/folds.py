"""Cross-validation: several models, each trained by an optimizer of its own and then left in eval mode."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FOLDS, BATCHES, SIZE = 3, 5, 4


def main() -> None:
    torch.manual_seed(0)
    models = [nn.Linear(4, 1) for _ in range(FOLDS)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for model, optimizer in zip(models, optimizers, strict=True):
        model.train()
        for (inputs,) in DataLoader(TensorDataset(torch.randn(BATCHES * SIZE, 4)), batch_size=SIZE):
            optimizer.zero_grad()
            model(inputs).mean().backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for (inputs,) in DataLoader(TensorDataset(torch.randn(6, 4)), batch_size=2):
                model(inputs)


if __name__ == "__main__":
    main()
