"""Cost of reading the output of an observed plain loop that prints 50 MB a second: share of a core.

    python -m tests.benchmarks.output_cost

Each line is processor time of one look, once a second, after 50 MB were written; the median of several.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from tuner_tui.core.clock import ClockReading
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.supervise.printed_metrics import PrintedMetrics

BYTES = 50_000_000
LOOKS = 7
LINES = {
    "a loss": "Train Epoch: 1 [640/6000 (11%)]\tLoss: 0.713240\n",
    "a loss and metrics": "Epoch: [0][ 1/15]\tTime 0.53 (0.61)\tLoss 2.302e+00 (2.401e+00)\tAcc@1 0.00 (0.00)\n",
    "a progress bar": "Epoch 1/10: 100%|##########| 94/94 [00:03<00:00, 30.1it/s, loss=0.4]\r",
    "an evaluation": "Test: [ 1/15]\tTime  0.531 ( 0.616)\tLoss 2.3026e+00 (2.4012e+00)\tAcc@1   0.00\n",
    "nothing": "2026-11-22 04:20:35,123 DEBUG connectionpool: GET /api/models/x HTTP/1.1 200\n",
    "one endless line": "x" * 100_000,
}


def main() -> None:
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for what, line in LINES.items():
        with tempfile.NamedTemporaryFile() as log:
            print(f"{what:20}{look_s(log.name, line.encode()):8.3%} of a core", flush=True)


def look_s(log: str, line: bytes) -> float:
    """Median processor seconds of a look at the output, whose length is not known yet."""
    printed, seconds = PrintedMetrics(Path(log)), []
    written = line * (BYTES // len(line))
    for look in range(1, LOOKS + 1):
        with Path(log).open("ab") as file:
            file.write(written)
        began_s = time.thread_time()
        printed.events(RunState(step=1000 * look), ClockReading(wall_s=look, monotonic_s=look), over=False)
        seconds.append(time.thread_time() - began_s)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
