"""What supervising costs: processor and memory of the supervisor while a training of some seconds runs.

    python -m tests.benchmarks.supervisor_cost [SECONDS]

The training is a process that only waits, so that every figure is the supervisor's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.peers import fake_box
from tests.fake_nvml.scenario import Scenario, a100
from tuner_tui.runs.folder import find_run
from tuner_tui.runs.supervision import read_supervision

TICKS_S = os.sysconf("SC_CLK_TCK")
WARM_UP_S = 5.0
BUDGET = (0.5, 35.0)
"""Per cent of a core, MB."""


def cpu_s(pid: int) -> float:
    """Processor seconds of `pid` so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_S


def peak_bytes(pid: int) -> int:
    """The most resident memory that `pid` ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def measured(cards: int, seconds: float) -> tuple[float, float]:
    """Per cent of a core and MB of a supervisor that watches `cards` cards."""
    with fake_box(Scenario(gpus=tuple(a100(index) for index in range(cards)))) as (environment, folder):
        environment["TUNER_STATE_DIR"] = str(folder / "state")
        waiting = [sys.executable, "-c", "import signal; signal.pause()"]
        command = [sys.executable, "-m", "tuner_tui", "run", "--detach", "--", *waiting]
        started = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
        run = find_run(started.stdout.strip(), folder / "state" / "runs")
        supervision = read_supervision(run.state)
        assert supervision is not None
        assert supervision.training is not None
        try:
            return _watch(supervision.supervisor.pid, seconds)
        finally:
            os.kill(supervision.training.pid, 9)


def _watch(pid: int, seconds: float) -> tuple[float, float]:
    pause = ["sleep", str(WARM_UP_S)], ["sleep", str(seconds)]
    subprocess.run(pause[0], check=True)
    before = cpu_s(pid)
    subprocess.run(pause[1], check=True)
    return 100 * (cpu_s(pid) - before) / seconds, peak_bytes(pid) / 1e6


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    print(f"{'supervisor':<14}{'% of a core':>14}{'peak MB':>10}")
    for cards in (0, 2, 8):
        percent, megabytes = measured(cards, seconds)
        print(f"{f'{cards} cards':<14}{percent:>14.2f}{megabytes:>10.1f}")
    print(f"{'budget':<14}{BUDGET[0]:>14.2f}{BUDGET[1]:>10.1f}")


if __name__ == "__main__":
    main()
