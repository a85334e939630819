"""Cost of `watch` with 8 GPUs and 500 processes, compared with nvitop: bytes per second, CPU and memory.

    python -m tests.benchmarks.screen.watch_cost [SECONDS] [ROUNDS]

The GPUs are simulated, the processes real. Rounds are interleaved, so that other load affects both programs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.benchmarks.screen.peers import OURS, PEER, commands, fake_box, open_terminal
from tests.benchmarks.screen.process_crowd import scenario_of, start_processes
from tests.benchmarks.screen.screen_cost import figures
from tests.benchmarks.screen.terminal import Cost
from tuner_tui.hardware.environment import sees_host_pids

PROCESSES = 500
WARM_UP_S = 14.0
BUDGET = (1100, 1.2, 55)
"""Bytes a second, percent of a core, MB."""
JOBS = f"{OURS} jobs"
"""Display with one row per job; the other one shows every process."""


def measured(seconds: float, rounds: int) -> dict[str, list[Cost]]:
    """Costs of each round by display."""
    costs: dict[str, list[Cost]] = {}
    with (
        tempfile.TemporaryDirectory() as name,
        start_processes(PROCESSES, Path(name)) as ranks,
        fake_box(scenario_of(ranks)) as (environment, folder),
    ):
        for _ in range(rounds):
            for shape, (command, keys) in shapes().items():
                with open_terminal(command, environment, folder) as terminal:
                    terminal.watch(WARM_UP_S / 2)
                    terminal.press(keys)
                    terminal.watch(WARM_UP_S / 2)
                    costs.setdefault(shape, []).append(terminal.watch(seconds))
    return costs


def shapes() -> dict[str, tuple[list[str], bytes]]:
    """Command and keys of each display."""
    programs = commands()
    ours = [*programs.pop(OURS), "watch"]
    others = {name: (command, b"") for name, command in programs.items()}
    return {JOBS: (ours, b""), f"{OURS} processes": (ours, b"a"), **others}


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    if not sees_host_pids():
        print("in a container the cards' processes cannot be matched with ours: jobs are found by their looks alone")
    rows = {name: figures(costs) for name, costs in measured(seconds, rounds).items()}
    if PEER in rows:
        ours, peer = rows[JOBS], rows[PEER]
        rows["ratio"] = (ours[0] / peer[0], ours[1] / peer[1], ours[2] / peer[2])
    print(f"\n8 cards, {PROCESSES} processes, 120×40, 1 Hz{'':5}{'bytes/s':>10}{'% of a core':>14}{'MB':>8}")
    for name, (bytes_s, cpu_pct, megabytes) in {**rows, "budget": BUDGET}.items():
        digits = 2 if name == "ratio" else 0
        print(f"{name:<38}{bytes_s:>10.{digits}f}{cpu_pct:>14.2f}{megabytes:>8.{max(1, digits)}f}")


if __name__ == "__main__":
    main()
