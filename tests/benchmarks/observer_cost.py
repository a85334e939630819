"""Cost of the observer per step and at the start of an interpreter.

Run: `python -m tests.benchmarks.observer_cost [pairs]` (about a minute). Blocks of steps with and without the
observer's hooks alternate in one process, so that other load affects both alike. Figures are CPU time of the training
thread: the median difference of neighbouring blocks (of neighbouring steps if they are long) and its 95 % interval by
order statistics. Every block includes reading the records; the event written once a second is listed separately.
"""

from __future__ import annotations

import compileall
import gc
import inspect
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

SITE = Path(__file__).parents[2] / "tuner_tui" / "observer" / "site"
Step = Callable[[], None]
STEPS_A_READING = 100


def main() -> None:
    pairs = sys.argv[1] if len(sys.argv) > 1 else "300"
    compileall.compile_dir(SITE, quiet=1)  # as an installed one is
    with tempfile.TemporaryDirectory() as folder:
        shared = {**os.environ, "OMP_NUM_THREADS": "1"}
        watched = shared | {"PYTHONPATH": str(SITE), "TUNER_RUN_DIR": folder}
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; µs of CPU, median and 95 % interval")
        subprocess.run([sys.executable, __file__, "steps", pairs], env=watched, check=True)
        starts = [(start_s(shared), start_s(watched)) for _ in range(41)][1:]
        report("python -c pass", starts)


def report(title: str, pairs: Sequence[tuple[float, float]]) -> None:
    """Print one line: the median without the observer, and the difference."""
    differences = sorted((with_s - without_s) * 1e6 for without_s, with_s in pairs)
    middle, around = len(differences) / 2, 0.98 * math.sqrt(len(differences))
    low, high = differences[max(0, int(middle - around))], differences[min(len(differences) - 1, int(middle + around))]
    without = statistics.median(without_s for without_s, _ in pairs) * 1e6
    added = statistics.median(differences)
    print(f"{title:34}{without:10.1f} {added:+8.1f} ({low:+.1f} … {high:+.1f}) {added / without:+7.1%}", flush=True)


def start_s(environment: dict[str, str]) -> float:
    """CPU seconds of an idle interpreter."""
    before = _children_s()
    subprocess.run([sys.executable, "-c", "pass"], env=environment, check=True)
    return _children_s() - before


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def steps(pairs: int) -> None:
    """Everything measured inside an observed process."""
    import torch

    ids = torch.zeros(16, 512, dtype=torch.long)
    mask = torch.ones_like(ids)
    switch = Switch()
    report("the same twice", switch.pairs_s(idle(ids), 200, pairs // 3, (False, False)))
    report("idle loop, 16 × 512 tokens", switch.pairs_s(idle({"input_ids": ids}), 200, pairs))
    report("idle loop, tokens and mask", switch.pairs_s(idle({"input_ids": ids, "mask": mask}), 200, pairs))
    report("small model", switch.pairs_s(classifier(0), 40, pairs))
    report("small model, tokens and mask", switch.pairs_s(tagger(), 30, pairs))
    long = classifier(5e-3)
    report("about 5 ms, the same twice", switch.neighbours_s(long, 5 * pairs, (False, False)))
    report("about 5 ms, step beside step", switch.neighbours_s(long, 5 * pairs))
    line_s = sorted(_cpu_s(switch.counters.flush) for _ in range(50))
    print(f"{'a line, once a second':34}{statistics.median(line_s) * 1e6:10.1f}")


class Switch:
    """Removes the observer's hooks and restores them."""

    def __init__(self) -> None:
        import torch
        from torch.optim import optimizer
        from torch.utils.data import dataloader

        self._tensor = torch.Tensor
        self._backward = torch.Tensor.backward
        self._iterator = dataloader._BaseDataLoaderIter
        self._next = self._iterator.__next__
        self._next_index = self._iterator._next_index
        self._hooks = (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks)
        self._ours = [dict(hooks) for hooks in self._hooks]
        assert all(self._ours)
        [self.counters] = [each for each in gc.get_objects() if type(each).__name__ == "StepCounters"]

    def turn(self, on: bool) -> None:
        """Enable or disable the hooks."""
        self._iterator.__next__ = self._next if on else self._next.__wrapped__
        self._iterator._next_index = self._next_index if on else self._next_index.__wrapped__
        self._tensor.backward = self._backward if on else inspect.unwrap(self._backward)
        for hooks, ours in zip(self._hooks, self._ours, strict=True):
            hooks.clear()
            if on:
                hooks.update(ours)

    def pairs_s(
        self, step: Step, steps: int, pairs: int, order: tuple[bool, bool] = (False, True)
    ) -> list[tuple[float, float]]:
        """Seconds per step of neighbouring blocks, in alternating order."""
        collected = []
        self.block_s(step, steps, True)
        for index in range(pairs):
            times = [(side, self.block_s(step, steps, order[side])) for side in ((0, 1), (1, 0))[index % 2]]
            collected.append((dict(times)[0], dict(times)[1]))
        return collected

    def neighbours_s(
        self, step: Step, pairs: int, order: tuple[bool, bool] = (False, True)
    ) -> list[tuple[float, float]]:
        """Seconds of neighbouring steps, for long steps whose blocks would be too far apart to be compared.

        The records are read outside the steps, which adds about 1 µs per step in reality.
        """
        collected = []
        for index in range(pairs):
            times = []
            for side in ((0, 1), (1, 0))[index % 2]:
                self.turn(order[side])
                times.append((side, _cpu_s(step)))
            collected.append((dict(times)[0], dict(times)[1]))
            if index % STEPS_A_READING == 0:
                self.counters.read()
        return collected

    def block_s(self, step: Step, steps: int, on: bool) -> float:
        """Seconds per step, including reading the records."""
        self.turn(on)

        def block() -> None:
            for _ in range(steps):
                step()
            self.counters.read()

        return _cpu_s(block) / steps


def _cpu_s(work: Step) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def idle(batch: Any) -> Step:
    """A step that does only what is observed."""
    import torch
    from torch.utils.data import DataLoader

    class Nothing(torch.optim.Optimizer):
        def step(self, closure: object = None) -> None:
            return None

    class Same:
        def __len__(self) -> int:
            return 1 << 30

        def __getitem__(self, index: int) -> Any:
            return batch

    optimizer = Nothing([torch.nn.Parameter(torch.zeros(1))], {})
    batches = iter(DataLoader(Same(), batch_size=None))

    def step() -> None:
        next(batches)
        optimizer.step()

    return step


def classifier(extra_s: float) -> Step:
    """A small classifier with AdamW, plus matrix products that take `extra_s`."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    model = torch.nn.Linear(64, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(32 * 300, 64), torch.randint(0, 8, (32 * 300,)))
    square = torch.randn(128, 128)
    product_s = statistics.median(_cpu_s(lambda: torch.mm(square, square)) for _ in range(50))
    products = int(extra_s / product_s)

    def endless() -> Iterator[Any]:
        while True:
            yield from DataLoader(data, batch_size=32)

    batches = endless()

    def step() -> None:
        inputs, targets = next(batches)
        for _ in range(products):
            torch.mm(square, square)
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def tagger() -> Step:
    """A small model with 16 × 128 tokens and their mask, collated from samples as a Trainer does."""
    import torch
    from torch.utils.data import DataLoader

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(100, 32), torch.nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    mask = torch.ones(128, dtype=torch.long)
    samples = [{"input_ids": torch.randint(100, (128,)), "attention_mask": mask} for _ in range(16 * 100)]

    def endless() -> Iterator[Any]:
        while True:
            yield from DataLoader(samples, batch_size=16)

    batches = endless()

    def step() -> None:
        batch = next(batches)
        model(batch["input_ids"]).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    if sys.argv[1:2] == ["steps"]:
        steps(int(sys.argv[2]))
    else:
        main()
