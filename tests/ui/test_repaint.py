"""Watching costs little over SSH: seconds in which some figures moved are some hundred bytes, never a whole panel."""

from __future__ import annotations

import shutil
import time
from contextlib import nullcontext

import pytest

from tests.benchmarks.screen.followed_run import followed_run
from tests.benchmarks.screen.peers import OURS, commands, fake_box, open_terminal
from tests.benchmarks.screen.screen_cost import BUDGETS
from tests.benchmarks.screen.terminal import Terminal
from tests.fakes.nvml.scenario import Scenario, a100

WINDOW_S = 1.5
REDRAW = b"\x0c"
CELLS = 120 * 40
LONGEST_S = 300.0


def is_frugal(terminal: Terminal, windows: int) -> bool:
    """Whether, once it has started, so many spans in a row show something new and keep to the budget, each of them.

    A start takes what it takes; what repaints a panel each second never keeps to it.
    """
    kept, deadline = 0, time.perf_counter() + LONGEST_S
    while kept < windows and time.perf_counter() < deadline:
        kept = kept + 1 if 0 < terminal.watch(WINDOW_S).bytes_s < BUDGETS[2][0] else 0
    return kept == windows


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the fake driver")
@pytest.mark.parametrize(("run", "windows"), [(False, 2), (True, 4)])
def test_moving_figures_repaint_no_panel(run: bool, windows: int) -> None:
    """In true colour, the dearest; four spans hold at least one loss and one line of the log."""
    with fake_box(Scenario(gpus=(a100(0), a100(1)))) as (environment, folder):
        seen = {**environment, "COLORTERM": "truecolor"}
        with (
            followed_run(seen, folder) if run else nullcontext(),
            open_terminal(commands()[OURS], seen, folder) as terminal,
        ):
            assert is_frugal(terminal, windows)
            terminal.press(REDRAW)
            assert terminal.watch(WINDOW_S).written_bytes > CELLS, "the whole screen, where it is asked for"
