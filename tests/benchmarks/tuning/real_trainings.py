"""Whether tuning small real trainings on the CPU finds their head-room, and whether whole runs confirm it.

Run on a quiet machine: `python -m tests.benchmarks.tuning.real_trainings [NAME…]`. Each training is tuned as a command;
then the start and the saved preset are run whole, in pairs of alternating order. Prints the tuner's result beside the
ratio of the whole runs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MINUTES = 6
PAIRS = 3
STEPS_SHOWN = 10


class Samples:
    """`count` samples of `features` numbers, each prepared for `sleep_s` seconds or computed for `work_s`."""

    def __init__(self, count: int, features: int = 64, sleep_s: float = 0.0, work_s: float = 0.0) -> None:
        self.count, self.features, self.sleep_s, self.work_s = count, features, sleep_s, work_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        import torch

        time.sleep(self.sleep_s)
        until = time.perf_counter() + self.work_s
        while time.perf_counter() < until:
            pass
        return torch.full((self.features,), index / self.count)


class Texts(Samples):
    """Sequences of 8 to 128 tokens."""

    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.full((8 + 37 * index % 121,), 1 + index % 99)


def pad(texts: Sequence[Any]) -> Any:
    """The texts as one batch, as long as the longest."""
    import torch

    return torch.nn.utils.rnn.pad_sequence(list(texts), batch_first=True)


def dense(width: int) -> Any:
    """A network of one hidden layer."""
    from torch import nn

    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 1))


def embedding(width: int) -> Any:
    """A network over each token."""
    from torch import nn

    return nn.Sequential(nn.Embedding(100, width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


@dataclass(frozen=True)
class Training:
    """A plain loop over `samples` with `batch` at once; `options` are those of `tuner-tui tune`."""

    samples: Samples
    model: Callable[[int], Any]
    width: int
    batch: int
    options: tuple[str, ...] = ()


TRAININGS = {
    "sleeping-loader": Training(Samples(6400, sleep_s=0.006), dense, 256, 8),
    "computing-loader": Training(Samples(6400, work_s=0.003), dense, 512, 8),
    "padded-texts": Training(Texts(40_000), embedding, 32, 4, ("--free-batch",)),
    "small-batch": Training(Samples(60_000), dense, 64, 2, ("--free-batch",)),
    "nothing-to-gain": Training(Samples(40_000), dense, 4096, 256),
}


def train(name: str) -> None:
    """Train one epoch of a training."""
    import torch
    from torch.utils.data import DataLoader

    torch.manual_seed(0)
    training = TRAININGS[name]
    model = training.model(training.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    collate = pad if isinstance(training.samples, Texts) else None
    loader: Any = DataLoader(training.samples, training.batch, shuffle=True, collate_fn=collate)
    for step, inputs in enumerate(loader):
        loss = model(inputs).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % STEPS_SHOWN == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def measure(name: str) -> str:
    """Tune a training and compare whole runs; returns a row of the table."""
    training = TRAININGS[name]
    command = ("--apply", "inject", "--", sys.executable, "-m", __spec__.name, "train", name)
    with tempfile.TemporaryDirectory() as state:
        environ = {**os.environ, "TUNER_STATE_DIR": state}

        def tuner(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-m", "tuner_tui", *words], env=environ, capture_output=True, text=True, check=False
            )

        tuned = tuner("tune", "--json", "--most-minutes", str(MINUTES), *training.options, *command)
        entries = [json.loads(line) for line in tuned.stdout.splitlines() if line.startswith("{")]
        ended = next((entry for entry in reversed(entries) if entry["kind"] == "ended"), None)
        verdict = (ended or {}).get("verdict")
        if ended is None or verdict is None:
            return f"{name:18} failed: {tuned.stderr.strip()[-200:]}"
        if ended.get("preset") is None:
            return f"{name:18} start kept: {verdict['sentence']}"
        ratios = []
        for pair in range(PAIRS):
            seconds = {}
            for side in ("start", "winner") if pair % 2 == 0 else ("winner", "start"):
                begun = time.perf_counter()
                words = ("--preset", ended["preset"]) if side == "winner" else command
                done = tuner("run", *words)
                if done.returncode:
                    return f"{name:18} the whole {side} failed: {done.stderr.strip()[-200:]}"
                seconds[side] = time.perf_counter() - begun
            ratios.append(seconds["start"] / seconds["winner"])
        whole = statistics.geometric_mean(ratios)
        Path(ended["preset"]).unlink(missing_ok=True)
        spread = f"{min(ratios):.2f} … {max(ratios):.2f}"
        return f"{name:18} tuned {verdict['ratio']:.2f}×   whole runs {whole:.2f}× ({spread}, {PAIRS} pairs)"


def main() -> None:
    """Print the table, or train as one of its commands."""
    if sys.argv[1:2] == ["train"]:
        train(sys.argv[2])
        return
    for name in sys.argv[1:] or TRAININGS:
        print(measure(name), flush=True)


if __name__ == "__main__":
    main()
