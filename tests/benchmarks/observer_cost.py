"""What the observer costs: its hooks, a whole loop, and the start of an interpreter.

Run: `python -m tests.benchmarks.observer_cost [rounds]`. Processes with and without the observer take
turns; figures are medians over all rounds, on the machine at hand.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

SITE = Path(__file__).parents[2] / "tuner_tui" / "observer" / "site"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        environments = [{"PYTHONPYCACHEPREFIX": folder}] * 2
        environments[1] = environments[0] | {"PYTHONPATH": str(SITE), "TUNER_RUN_DIR": folder}
        report("hooks alone, CPU", *steps_s("hooks", 0.0, rounds, environments))
        report("small model, CPU", *steps_s("loop", 0.0, rounds, environments))
        report("5 ms steps, wall", *steps_s("loop", 0.005, rounds, environments))
        report("python -c pass, CPU", *starts_s(4 * rounds, environments))


def report(what: str, without_s: list[float], with_s: list[float]) -> None:
    """One line: medians without and with the observer, in microseconds."""
    without, with_ = statistics.median(without_s) * 1e6, statistics.median(with_s) * 1e6
    print(f"{what:26}{without:10.1f} → {with_:10.1f} µs {with_ - without:+9.1f} µs {with_ / without - 1:+7.1%}")


def steps_s(
    kind: str, work_s: float, rounds: int, environments: list[dict[str, str]]
) -> tuple[list[float], list[float]]:
    """Seconds a step, without and with the observer: one figure a block of steps."""
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for times, environment in zip(found, environments, strict=True):
            command = [sys.executable, __file__, kind, str(work_s)]
            full = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
            result = subprocess.run(command, env=full, capture_output=True, text=True, check=True)
            times += json.loads(result.stdout)
    return found


def starts_s(rounds: int, environments: list[dict[str, str]]) -> tuple[list[float], list[float]]:
    """CPU seconds of an interpreter that does nothing, without and with the observer."""
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for times, environment in zip(found, environments, strict=True):
            before = _children_s()
            subprocess.run([sys.executable, "-c", "pass"], env={**os.environ, **environment}, check=True)
            times.append(_children_s() - before)
    return found[0][1:], found[1][1:]


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def hooks() -> list[float]:
    """CPU of a step of nothing but what is watched: a 16×512 token batch with its mask, and an idle optimizer."""
    import torch
    from torch.utils.data import DataLoader

    class Nothing(torch.optim.Optimizer):  # type: ignore[misc]
        def step(self, closure: object = None) -> None:
            return None

    class Same:
        def __len__(self) -> int:
            return 1 << 30

        def __getitem__(self, index: int) -> Mapping[str, Any]:
            return batch

    ids = torch.zeros(16, 512, dtype=torch.long)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    optimizer = Nothing([torch.nn.Parameter(torch.zeros(1))], {})
    loader = DataLoader(Same(), batch_size=None)
    return blocks_s(lambda: iter(loader), lambda _: optimizer.step(), 2000, time.thread_time)


def loop(work_s: float) -> list[float]:
    """A small classifier: its CPU, or its wall time where each step is padded to `work_s` by spinning."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    model = torch.nn.Linear(64, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(32 * 300, 64), torch.randint(0, 8, (32 * 300,)))
    loader = DataLoader(data, batch_size=32)

    def train(batch: Any) -> None:
        until = time.perf_counter() + work_s
        inputs, targets = batch
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        while time.perf_counter() < until:
            pass

    if work_s:
        return blocks_s(lambda: iter(loader), train, 100, time.perf_counter)
    return blocks_s(lambda: iter(loader), train, 300, time.thread_time)


def blocks_s(
    epoch: Callable[[], Iterator[Any]], train: Callable[[Any], None], steps: int, clock: Callable[[], float]
) -> list[float]:
    """Seconds a step, by `clock`, of five blocks after one that warms up."""
    found = []
    for _ in range(6):
        batches = epoch()
        train(next(batches))
        began = clock()
        for _ in range(steps - 1):
            train(next(batches))
        found.append((clock() - began) / (steps - 1))
    return found[1:]


if __name__ == "__main__":
    if sys.argv[1:2] == ["hooks"]:
        print(json.dumps(hooks()))
    elif sys.argv[1:2] == ["loop"]:
        print(json.dumps(loop(float(sys.argv[2]))))
    else:
        main()
