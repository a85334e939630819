"""Trains a little and then hangs in the way that the first argument names; `fine` never does.

Started alone, or as one of several ranks by the environment of torchrun.
"""

import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

KIND = sys.argv[1]
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
STEPS = 40
FOREVER_S = 600.0


class Samples(Dataset[torch.Tensor]):
    """Sixteen floats; the sample at which the hang is, waits."""

    def __len__(self) -> int:
        return 4 * 2 * STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        if KIND == "stuck-worker" and index >= 64:
            read_remote_file(index)
        if KIND == "slow-data" and RANK == WORLD - 1 and index >= 64:
            read_remote_file(index)
        if KIND == "own-data" and index >= 64:
            read_remote_file(index)
        return torch.full((16,), float(index))


def read_remote_file(index: int) -> None:
    time.sleep(FOREVER_S)  # a remote file that does not come


def evaluate(model: nn.Module) -> None:
    time.sleep(FOREVER_S)


def evaluate_with_reduce() -> None:
    total = torch.zeros(1)
    dist.broadcast(total, 0)


def save() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as file:
        torch.save(torch.zeros(2**20), file)  # more than the pipe takes, and nobody reads it
    os.close(reader)


def wait_for_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    with lock:
        pass


def spin() -> None:
    n = 0
    while True:
        n += 1


def hang(model: nn.Module) -> None:
    last = RANK == WORLD - 1
    if KIND == "sleep" and last:
        time.sleep(FOREVER_S)
    if KIND == "lock" and last:
        wait_for_lock()
    if KIND == "event" and last:
        threading.Event().wait()
    if KIND == "spin" and last:
        spin()
    if KIND == "debugger" and last:
        sys.stdin = os.fdopen(os.pipe()[0])
        breakpoint()
    if KIND == "evaluates-alone" and last:
        evaluate(model)
    if KIND == "saves-alone" and last:
        save()
    if KIND == "reduces-alone" and last:
        evaluate_with_reduce()
    if KIND == "other-shape":
        dist.all_reduce(torch.zeros(3 + last))
        time.sleep(FOREVER_S)
    if KIND == "skips" and not last:
        dist.barrier()
    if KIND == "dies" and last:
        os.kill(os.getpid(), 9)


def main() -> None:
    if WORLD > 1:
        dist.init_process_group(backend="gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    if WORLD > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    workers = 2 if KIND in ("stuck-worker", "slow-data") else 0
    data = Samples()
    sampler = DistributedSampler(data, shuffle=False) if WORLD > 1 and KIND != "uneven" else None
    if KIND == "uneven" and RANK == 0:
        data = torch.utils.data.Subset(data, range(40))
    loader = DataLoader(data, batch_size=4, num_workers=workers, sampler=sampler)
    for step, batch in enumerate(loader):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        time.sleep(0.02)
        if step == 12:
            hang(model)
    if KIND == "uneven" and RANK == 0:
        time.sleep(FOREVER_S)
    print("ended", flush=True)


if __name__ == "__main__":
    main()
