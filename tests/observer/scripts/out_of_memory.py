"""Allocates more than its limit in the optimizer step: Adam's two moments are larger than everything before."""

import resource
from pathlib import Path

import torch

weight = torch.nn.Parameter(torch.zeros(1 << 24))
weight.grad = torch.ones_like(weight)
small = torch.nn.Parameter(torch.zeros(2))
small.grad = torch.ones_like(small)
optimizer = torch.optim.Adam([weight], foreach=False)
torch.optim.SGD([small], lr=0.1).step()
used_bytes = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (used_bytes + (80 << 20),) * 2)
optimizer.step()
