"""A loop as people write it: forked and spawned workers, evaluation without gradients and one that forgets them."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, SAMPLES, BATCH = 2, 48, 8


def main() -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(SAMPLES, 8), torch.randn(SAMPLES, 1))
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=2, multiprocessing_context="fork")
    spawned = DataLoader(data, batch_size=SAMPLES, num_workers=1, multiprocessing_context="spawn")
    in_process = DataLoader(data, batch_size=BATCH)
    next(iter(DataLoader(data, batch_size=SAMPLES)))  # a look at the data before the first step
    for epoch in range(EPOCHS):
        model.train()
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(loss.item().hex())
        model.eval()
        for inputs, _ in in_process:
            model(inputs)
        if epoch == 0:
            with torch.no_grad():
                for inputs, _ in spawned:
                    model(inputs)
    print(torch.rand(1).item().hex())


if __name__ == "__main__":
    main()
