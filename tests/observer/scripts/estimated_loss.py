"""A loop without a loader that accumulates by itself and estimates its loss every few steps, before the first one too.

Prints the seconds of the estimates after the first step.
"""

import time

import torch
from torch import nn

STEPS, EVERY, ACCUMULATION = 12, 4, 3
model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.Linear(4, 1))


def batch() -> torch.Tensor:
    time.sleep(0.003)
    return torch.ones(2, 4)


@torch.no_grad()  # type: ignore[untyped-decorator]
def estimate_loss() -> torch.Tensor:
    model.eval()
    losses = torch.zeros(20)
    for k in range(20):
        losses[k] = model(batch()).pow(2).mean().item()
    model.train()
    return losses.mean()


def main() -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    spent_s, step = 0.0, 0
    while True:
        if step % EVERY == 0:
            began_s = time.perf_counter()
            estimate_loss()
            spent_s += time.perf_counter() - began_s if step else 0.0
        for _ in range(ACCUMULATION):
            loss = model(batch()).pow(2).mean() / ACCUMULATION
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step > STEPS:
            break
    print(spent_s)


if __name__ == "__main__":
    main()
