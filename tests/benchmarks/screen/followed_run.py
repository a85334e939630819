"""A run to follow: launched and supervised as usual, with a script that writes events without training.

Once a second the script writes counters as the observer would. A quiet run logs a loss every fifth second; a printing
one does so almost every second, with a progress bar, as the demo does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.benchmarks.screen.peers import OURS, commands

QUIET = """
import math, os, sys, time
from pathlib import Path
from tuner_tui.core.line_files import LineAppender
from tuner_tui.runs.store.codec import encode_event as encode
from tuner_tui.runs.events.types import Metrics, Phase, Plan, Started, Steps

out = LineAppender(Path(os.environ["TUNER_RUN_DIR"]) / "events.jsonl")
start = time.time()
out.append(encode(Started(t=start, rank=0, pid=os.getpid(), torch="2.13.0")))
out.append(encode(Plan(t=start, rank=0, total_steps=90_000)))
out.append(encode(Phase(t=start, rank=0, phase="training", step=0)))
for second in range(1, 36_000):
    time.sleep(max(0.0, start + second - time.time()))
    now, step = time.time(), second * 3
    wave = math.sin(second / 7)
    out.append(encode(Steps(
        t=now, rank=0, step=step, own_steps=step, micro_steps=step * 4, samples=step * 64, tokens=step * 64 * 240,
        padding_tokens=step * 64 * 16, train_s=second * 0.98 + wave / 30, data_wait_s=second * 0.02 + wave / 50,
        slowest_step_s=0.4, allocated_peak_bytes=61 << 30, reserved_peak_bytes=66 << 30,
    )))
    if second % 5 == 0:
        loss = 0.9 + 2 / (1 + second / 300) + wave / 20
        out.append(encode(Metrics(t=now, rank=0, step=step, loss=loss, learning_rate=4e-5, grad_norm=0.7 + wave / 9)))
        print({"loss": f"{loss:.4f}", "grad_norm": f"{0.7 + wave / 9:.4f}", "learning_rate": "4e-05"}, flush=True)
"""


PRINTING = """
import math, os, random, sys, time
from pathlib import Path
from tuner_tui.core.line_files import LineAppender
from tuner_tui.runs.store.codec import encode_event as encode
from tuner_tui.runs.events.types import Metrics, Phase, Plan, Started, Steps

out = LineAppender(Path(os.environ["TUNER_RUN_DIR"]) / "events.jsonl")
start, total, noise = time.time(), 1200, random.Random(4)
out.append(encode(Started(t=start, rank=0, pid=os.getpid(), torch="2.13.0")))
out.append(encode(Plan(t=start, rank=0, total_steps=total)))
out.append(encode(Phase(t=start, rank=0, phase="training", step=0)))
for step in range(1, total):
    time.sleep(max(0.0, start + step * 0.12 - time.time()))
    now, done = time.time(), step / total
    rate = 8.3 + noise.random()
    bar = chr(9608) * int(done * 10)
    times = f"00:{step * 0.12:02.0f}<00:{(total - step) * 0.12:02.0f}"
    sys.stderr.write(f"\\r{done:4.0%}|{bar:<10}| {step}/{total} [{times}, {rate:5.2f}it/s]")
    if step % 8 == 0:
        loss = 0.4 + 2.6 * math.exp(-3 * done) + noise.gauss(0, 0.08)
        norm, pace = 1.5 + noise.random(), 1e-3 * (1 - done)
        out.append(encode(Metrics(t=now, rank=0, step=step, loss=loss, learning_rate=pace, grad_norm=norm)))
        sys.stderr.write("\\r" + " " * 70 + "\\r")
        figures = {"loss": f"{loss:.4f}", "grad_norm": f"{norm:.3f}", "learning_rate": f"{pace:.3e}"}
        print({**figures, "epoch": f"{done * 2:.3f}"}, flush=True)
    if step % 8 == 4:
        out.append(encode(Steps(
            t=now, rank=0, step=step, own_steps=step, micro_steps=step, samples=step * 32, tokens=step * 32 * 70,
            padding_tokens=step * 32 * 6, train_s=step * 0.118 + noise.random() / 30, data_wait_s=step * 0.002,
            slowest_step_s=0.4, rss_peak_bytes=611_000_000 + step * 4096,
        )))
"""


@contextmanager
def followed_run(environment: Mapping[str, str], folder: Path, script: str = QUIET) -> Iterator[None]:
    """Keep the run alive within the block; the screen finds running trainings."""
    ours = commands()[OURS]
    start = [*ours, "run", "--detach", "--preset", "demo", "--apply", "none", "--", sys.executable, "-c", script]
    quiet = partial(subprocess.run, env=dict(environment), cwd=folder, capture_output=True, text=True)
    name = quiet(start, check=True).stdout.strip()
    try:
        yield
    finally:
        quiet([*ours, "stop", name, "--now"], check=False)
