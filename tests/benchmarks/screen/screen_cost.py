"""Cost of the screens: bytes per second to the terminal, CPU and memory, compared with nvitop on the same fake GPUs.

    python -m tests.benchmarks.screen.screen_cost [SECONDS] [ROUNDS]

Rounds are interleaved, so that other load affects both programs. nvitop has no counterpart to following a run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from statistics import mean
from typing import NamedTuple

from tests.benchmarks.screen.followed_run import PRINTING, QUIET, followed_run
from tests.benchmarks.screen.peers import OURS, PEER, commands, fake_box, machine, open_terminal
from tests.benchmarks.screen.terminal import Cost, Terminal
from tests.fakes.nvml.scenario import Scenario, a100

QUIET_S = 8
QUIET_BYTES = 1500
LONGEST_WARM_UP_S = 90.0
BUDGETS = {2: (1000, 1.0, 55), 8: (2000, 1.2, 55)}
"""Number of GPUs: bytes per second, percent of a core, MB."""


class Case(NamedTuple):
    """What is shown: number of GPUs, `watch` or the main screen, with or without a run, whether it prints, colours."""

    gpus: int
    watch: bool = False
    run: bool = False
    true_colour: bool = False
    prints: bool = False

    def __str__(self) -> str:
        run = ", a run" * self.run + " that prints" * self.prints
        return f"{'watch, ' * self.watch}{self.gpus} GPUs{run}{', true colour' * self.true_colour}"


CASES = (
    Case(2, watch=True),
    Case(2),
    Case(8),
    Case(2, run=True),
    Case(8, run=True),
    Case(2, run=True, true_colour=True),
    Case(2, run=True, prints=True),
)


def settle(terminal: Terminal) -> None:
    """Wait until nothing large was drawn for some seconds, that is, until start-up has finished."""
    quiet, deadline = 0, time.perf_counter() + LONGEST_WARM_UP_S
    while quiet < QUIET_S and time.perf_counter() < deadline:
        quiet = quiet + 1 if terminal.watch(1.0).written_bytes < QUIET_BYTES else 0


def measured(case: Case, seconds: float, rounds: int) -> dict[str, list[Cost]]:
    """Costs of each round by program."""
    costs: dict[str, list[Cost]] = {}
    programs = {name: command for name, command in commands().items() if name == OURS or not case.run}
    programs[OURS] = [*programs[OURS], *["watch"] * case.watch]
    with fake_box(Scenario(gpus=tuple(a100(index) for index in range(case.gpus)))) as (environment, folder):
        seen = {**environment, "COLORTERM": "truecolor" if case.true_colour else ""}
        with followed_run(seen, folder, PRINTING if case.prints else QUIET) if case.run else nullcontext():
            for _ in range(rounds):
                for name, command in programs.items():
                    with open_terminal(command, seen, folder) as terminal:
                        settle(terminal)
                        costs.setdefault(name, []).append(terminal.watch(seconds))
    return costs


def figures(costs: Sequence[Cost]) -> tuple[float, float, float]:
    """Bytes a second, percent of a core, MB: means over the rounds."""
    return (
        mean(cost.bytes_s for cost in costs),
        mean(cost.cpu_pct for cost in costs),
        mean(cost.rss_bytes for cost in costs) / 1e6,
    )


def report(case: Case, costs: dict[str, list[Cost]]) -> None:
    """Print one line per program, their ratio and the budget."""
    print(f"\n{case!s:<33}{'bytes/s':>10}{'% of a core':>14}{'MB':>8}")
    rows = {name: figures(each) for name, each in costs.items()}
    if PEER in rows:
        ratio = tuple(ours / peer for ours, peer in zip(rows[OURS], rows[PEER], strict=True))
        rows["ratio"] = (ratio[0], ratio[1], ratio[2])
    rows["budget"] = BUDGETS[case.gpus]
    for name, (bytes_s, cpu_pct, megabytes) in rows.items():
        digits = 2 if name == "ratio" else 0
        print(f"{name:<33}{bytes_s:>10.{digits}f}{cpu_pct:>14.2f}{megabytes:>8.{max(1, digits)}f}")


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    for case in CASES:
        report(case, measured(case, seconds, rounds))
    print(f"\n120×40, 1 Hz, {rounds} rounds of {seconds:.0f} s; {machine()}")


if __name__ == "__main__":
    main()
