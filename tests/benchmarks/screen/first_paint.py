"""Time to the first text and to the answer of a key, and memory; compared with a bare Textual application and nvitop.

    python -m tests.benchmarks.screen.first_paint [ROUNDS]

Measured from exec to the first text on the terminal, and memory a second later, with two GPUs. Then again with one GPU
that takes 3 s to answer, also to the help screen, whose key is typed from the first text on.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
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
BARE = "bare Textual"
BARE_APP = Path(__file__).with_name("bare_textual.py")
WATCH, SCREEN = "tuner-tui watch", "the screen"
BUDGETS = {WATCH: (0.6, 40), SCREEN: (0.6, 52)}
"""Time as a ratio to the bare application, and MB."""
_SEQUENCES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-~]|[ -/]*[0-~])|[\x00-\x20]")


def text_of(written: bytes) -> bytes:
    """`written` without escape sequences and blanks."""
    return _SEQUENCES.sub(b"", written)


def seconds_until(terminal: Terminal, seen: Callable[[bytes], bool], key: bytes = b"") -> float:
    """Seconds from exec until `seen` is true of what was written since the call.

    `key` is typed once, but curses discards input typed before it is ready: for the peer, it is typed until then.
    """
    written, pressed = b"", False
    while time.perf_counter() - terminal.started_s < LONGEST_S and not terminal.ended:
        if not pressed or key == HELP[PEER][0]:
            terminal.press(key)
            pressed = True
        written += terminal.read(PATIENCE_S)
        if seen(written):
            return time.perf_counter() - terminal.started_s
    raise SystemExit(f"nothing came within {LONGEST_S:.0f} s; the last that did: {text_of(written)[-200:]!r}")


def is_painted(written: bytes) -> bool:
    return len(text_of(written)) > 20


def start_up(command: list[str], scenario: Scenario) -> tuple[float, float]:
    """Seconds from exec to the first text, and MB of memory a second later."""
    with fake_box(scenario) as (environment, folder), open_terminal(command, environment, folder) as terminal:
        painted_s = seconds_until(terminal, is_painted)
        return painted_s, terminal.watch(1.0).rss_bytes / 1e6


def measured(name: str, command: list[str], scenario: Scenario) -> tuple[float, float]:
    """Seconds from exec to the first frame and to the answered key."""
    key, word = HELP[name]
    with fake_box(scenario) as (environment, folder), open_terminal(command, environment, folder) as terminal:
        painted_s = seconds_until(terminal, is_painted)
        return painted_s, seconds_until(terminal, lambda written: word in written, key)


Measure = Callable[[str, list[str]], tuple[float, float]]


def medians(rounds: int, programs: dict[str, list[str]], measure: Measure) -> dict[str, tuple[float, ...]]:
    """The medians of interleaved rounds, so that other load affects all programs."""
    figures: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for name, command in programs.items():
            figures.setdefault(name, []).append(measure(name, command))
    return {name: tuple(median(column) for column in zip(*rows, strict=True)) for name, rows in figures.items()}


def report_start_up(rounds: int) -> None:
    """Print the first text and the memory with two GPUs, and both as a ratio to the bare application."""
    installed = commands()
    programs = {
        BARE: [sys.executable, str(BARE_APP)],
        WATCH: [*installed[OURS], "watch"],
        SCREEN: installed[OURS],
        **{name: command for name, command in installed.items() if name == PEER},
    }
    scenario = Scenario(gpus=(a100(0), a100(1)))
    rows = medians(rounds, programs, lambda name, command: start_up(command, scenario))
    print(f"\n{'two gpus':<36}{'first text s':>14}{'x bare':>8}{'budget':>8}{'MB':>8}{'budget':>8}")
    for name, (painted_s, megabytes) in rows.items():
        most, most_mb = BUDGETS.get(name, ("", ""))
        ratio = painted_s / rows[BARE][0]
        print(f"{name:<36}{painted_s:>14.3f}{ratio:>8.2f}{most:>8}{megabytes:>8.1f}{most_mb:>8}")


def report_slow_gpu(rounds: int) -> None:
    """Print the first frame and the answered key where one of two GPUs answers late."""
    scenario = Scenario(gpus=(a100(0), FakeGpu(delays_s={FIRST_CALL: SLOW_S})))
    rows = medians(rounds, commands(), lambda name, command: measured(name, command, scenario))
    if PEER in rows:
        rows["ratio"] = tuple(ours / peer for ours, peer in zip(rows[OURS], rows[PEER], strict=True))
    print(f"\none of two GPUs answers in {SLOW_S:.0f} s{'':6}{'first frame s':>14}{'key answered s':>16}")
    for name, (painted, usable) in {**rows, "budget": BUDGETS_S}.items():
        print(f"{name:<36}{painted:>14.2f}{usable:>16.2f}")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    report_start_up(rounds)
    report_slow_gpu(rounds)
    print(machine())


if __name__ == "__main__":
    main()
