"""Two gloo ranks on a CPU, as torchrun starts them."""

import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).mean().backward()
    optimizer.step()
del model, optimizer  # gloo's threads end with the last that holds the group; left alive they may abort the exit
gc.collect()
dist.destroy_process_group()
