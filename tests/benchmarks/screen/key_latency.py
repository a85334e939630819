"""Time from a key to its frame, with a GPU that hangs and all CPU cores busy.

    python -m tests.benchmarks.screen.key_latency [KEYS]

The cursor of the settings moves down and up; a key is answered when a row of the settings panel is drawn again, which
nothing else changes while the screen is idle.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles

from tests.benchmarks.screen.peers import OURS, commands, fake_box, machine, open_terminal
from tests.benchmarks.screen.terminal import Terminal
from tests.fakes.nvml.scenario import FakeGpu, Scenario, a100

WARM_UP_S = 12.0
PAUSE_S = 0.05
LONGEST_S = 5.0
HANGS_S = 3600.0
BUDGET_MS = 30.0
MOVED_TO = re.compile(rb"\x1b\[(\d+);(\d+)H")
PANEL_ROWS, PANEL_COLUMNS = range(2, 24), range(2, 40)
"""Where the settings are drawn, on a terminal of 120 × 40."""


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy with a process."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def draws_settings(written: bytes) -> bool:
    """Whether the terminal's cursor was moved into the settings panel."""
    places = ((int(row), int(column)) for row, column in MOVED_TO.findall(written))
    return any(row in PANEL_ROWS and column in PANEL_COLUMNS for row, column in places)


def latency_s(terminal: Terminal, key: bytes) -> float:
    """Seconds from `key` to the redrawn settings."""
    while terminal.read(0):
        pass
    pressed_s, written = time.perf_counter(), b""
    terminal.press(key)
    while not draws_settings(written):
        written += terminal.read(0.5)
        if time.perf_counter() - pressed_s > LONGEST_S:
            raise SystemExit(f"a key was not answered within {LONGEST_S:.0f} s")
    return time.perf_counter() - pressed_s


def measured(keys: int) -> list[float]:
    """Latency of each key in milliseconds."""
    scenario = Scenario(gpus=(a100(0), FakeGpu(latency_s=HANGS_S)))
    with fake_box(scenario) as (environment, folder), open_terminal(commands()[OURS], environment, folder) as terminal:
        terminal.watch(WARM_UP_S)
        taken = []
        for number in range(keys):
            taken.append(1000 * latency_s(terminal, b"k" if number % 6 >= 3 else b"j"))
            terminal.watch(PAUSE_S)
        return taken


def report(title: str, taken: list[float]) -> None:
    """Print median, 95th percentile and maximum."""
    print(f"{title:<36}{median(taken):>10.1f}{quantiles(taken, n=20)[-1]:>10.1f}{max(taken):>10.1f}")


def main() -> None:
    keys = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"\nkey to screen, one GPU hangs, ms{'':4}{'middle':>9}{'p95':>10}{'longest':>10}")
    report("cores as they are", measured(keys))
    with busy_cores():
        report("every core busy", measured(keys))
    print(f"{'budget':<46}{BUDGET_MS:>10.0f}")
    print(machine())


if __name__ == "__main__":
    main()
