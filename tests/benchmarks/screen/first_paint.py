"""Time to the first frame and to the answer of a key, compared with nvitop; one GPU takes 3 s to answer.

    python -m tests.benchmarks.screen.first_paint [ROUNDS]

Measured from exec to the first text on the terminal, and to the help screen, whose key is typed from then on.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from statistics import median

from tests.benchmarks.screen.peers import OURS, PEER, commands, fake_box, machine, open_terminal
from tests.benchmarks.screen.terminal import Terminal
from tests.fakes.nvml.scenario import FakeGpu, Scenario, a100

SLOW_S = 3.0
FIRST_CALL = "nvmlDeviceGetHandleByIndex_v2"
LONGEST_S = 60.0
PATIENCE_S = 0.1
HELP = {OURS: (b"?", b"esc back"), PEER: (b"h", b"Press any key")}
"""Key of each help screen, and a word on it."""
BUDGETS_S = (0.4, 0.5)
_SEQUENCES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-~]|[ -/]*[0-~])|[\x00-\x20]")


def text_of(written: bytes) -> bytes:
    """`written` without escape sequences and blanks."""
    return _SEQUENCES.sub(b"", written)


def seconds_until(terminal: Terminal, seen: Callable[[bytes], bool], key: bytes = b"") -> float:
    """Seconds from exec until `seen` is true of what was written since the call.

    `key` is typed repeatedly, because curses discards input typed before it is ready.
    """
    written = b""
    while time.perf_counter() - terminal.started_s < LONGEST_S and not terminal.ended:
        terminal.press(key)
        written += terminal.read(PATIENCE_S)
        if seen(written):
            return time.perf_counter() - terminal.started_s
    raise SystemExit(f"nothing came within {LONGEST_S:.0f} s; the last that did: {text_of(written)[-200:]!r}")


def measured(name: str, command: list[str], scenario: Scenario) -> tuple[float, float]:
    """Seconds from exec to the first frame and to the answered key."""
    key, word = HELP[name]
    with fake_box(scenario) as (environment, folder), open_terminal(command, environment, folder) as terminal:
        painted_s = seconds_until(terminal, lambda written: len(text_of(written)) > 20)
        return painted_s, seconds_until(terminal, lambda written: word in written, key)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    scenario = Scenario(gpus=(a100(0), FakeGpu(delays_s={FIRST_CALL: SLOW_S})))
    times: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for name, command in commands().items():
            times.setdefault(name, []).append(measured(name, command, scenario))
    print(f"\none of two cards answers in {SLOW_S:.0f} s{'':6}{'first frame s':>14}{'key answered s':>16}")
    rows = {name: tuple(median(each) for each in zip(*taken, strict=True)) for name, taken in times.items()}
    if PEER in rows:
        rows["ratio"] = tuple(ours / peer for ours, peer in zip(rows[OURS], rows[PEER], strict=True))
    for name, (painted, usable) in {**rows, "budget": BUDGETS_S}.items():
        print(f"{name:<36}{painted:>14.2f}{usable:>16.2f}")
    print(machine())


if __name__ == "__main__":
    main()
