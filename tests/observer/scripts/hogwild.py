"""Two processes that train one model in shared memory, without ranks; the parent evaluates what they learned."""

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(number: int, model: nn.Module, both: "mp.Barrier") -> None:
    torch.manual_seed(number)
    loader = DataLoader(TensorDataset(torch.randn(20, 4)), batch_size=4, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(number + 1):
        for (inputs,) in loader:
            optimizer.zero_grad()
            model(inputs).pow(2).mean().backward()
            optimizer.step()
        if epoch == 0:
            both.wait()


if __name__ == "__main__":
    mp.set_start_method("spawn")
    model = nn.Linear(4, 1)
    model.share_memory()
    both = mp.Barrier(2)
    processes = [mp.Process(target=train, args=(number, model, both)) for number in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    with torch.no_grad():
        model(torch.randn(4, 4))
