"""Time and memory needed to open a long run.

    python -m tests.benchmarks.open_run [EVENTS] [LOG_MEBIBYTES]

Writes a run with EVENTS events (default 1,000,000) and a log of LOG_MEBIBYTES MiB (default 1024) to a temporary folder,
then opens each in a fresh process and prints seconds and peak memory. `baseline` is a process that only imports.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tuner_tui.runs.events.types import Checkpoint, Evaluated, Event, Launched, Metrics, Phase, Plan, Started, Steps
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import RunFolder

OPEN = """
import json, resource, sys, time
from pathlib import Path
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.read.log_reader import LogReader
from tuner_tui.runs.read.reader import RunReader
what, folder = sys.argv[1], RunFolder(Path(sys.argv[2]))
began = time.perf_counter()
said = {}
if what == "events":
    view = RunReader(folder).poll()
    said = {"step": view.state.step, "loss points": len(view.history.loss.xs)}
elif what == "log tail":
    said = {"lines": len(LogReader(folder.output_log).tail(200).lines)}
elif what == "log search":
    found = LogReader(folder.output_log).search("this text is nowhere", 0)
    said = {"complete": found.complete}
seconds = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"what": what, "seconds": round(seconds, 3), "peak MiB": round(peak, 1), **said}))
"""


def main(events: int, log_mebibytes: int) -> None:
    """Write the run, open it, print."""
    with tempfile.TemporaryDirectory() as root:
        folder = RunFolder(Path(root) / "r001")
        folder.path.mkdir()
        write_events(folder.events, events)
        write_log(folder.output_log, log_mebibytes)
        print(f"{events:,} events, {folder.events.stat().st_size >> 20} MiB; log {log_mebibytes} MiB")
        for what in ("baseline", "events", "log tail", "log search"):
            opened = subprocess.run(
                [sys.executable, "-c", OPEN, what, str(folder.path)], check=True, capture_output=True, text=True
            )
            print("  ".join(f"{name} {value}" for name, value in json.loads(opened.stdout).items()))


def write_events(path: Path, count: int) -> None:
    """Write a run of `count` events: counters every second, metrics every five, evaluations and checkpoints."""
    with path.open("wb") as file:
        for event in (
            Launched(t=0.0, pid=1, argv=("python", "train.py")),
            Started(t=1.0, rank=0, pid=1, torch="2.13.0"),
            Plan(t=1.0, rank=0, total_steps=count * 4),
            Phase(t=2.0, rank=0, phase="training", step=0),
        ):
            file.write(encode_event(event))
        for number in range(count - 4):
            file.write(encode_event(event_number(number)))


def event_number(number: int) -> Event:
    """Event `number` of a long training."""
    t, step = 2.0 + number, number * 3
    if number % 20_000 == 19_999:
        return Evaluated(t=t, rank=0, step=step, metrics={"eval_loss": 3.0 - number / 1e6}, seconds=9.0)
    if number % 20_000 == 19_998:
        return Checkpoint(t=t, rank=0, step=step, path=f"output/checkpoint-{step}", seconds=2.0)
    if number % 5 == 4:
        return Metrics(t=t, rank=0, step=step, loss=3.0 - number / 1e6, learning_rate=1e-5, grad_norm=0.7, epoch=0.1)
    return Steps(
        t=t, rank=0, step=step, own_steps=step, micro_steps=step * 2, samples=step * 64, tokens=step * 64 * 100,
        padding_tokens=step * 64 * 7, train_s=number * 0.98, data_wait_s=number * 0.05, slowest_step_s=0.4,
        allocated_peak_bytes=21_474_836_480, reserved_peak_bytes=23_622_320_128,
    )  # fmt: skip


def write_log(path: Path, mebibytes: int) -> None:
    """Write log lines with progress bars in between."""
    lines = b"".join(b"{'loss': '%.4f', 'learning_rate': '1e-05', 'epoch': '0.1'}\n" % (n / 1e4) for n in range(8000))
    bars = b"".join(b"\r %3d%%|%s| %d/9999" % (n // 100, b"#" * (n // 400), n) for n in range(9999)) + b"\n"
    block = lines + bars
    with path.open("wb") as file:
        for _ in range((mebibytes << 20) // len(block) + 1):
            file.write(block)


if __name__ == "__main__":
    main(*(int(word) for word in [*sys.argv[1:], *["1000000", "1024"][len(sys.argv) - 1 :]]))
