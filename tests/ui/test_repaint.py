"""Watching costs little over SSH: a second in which some figures moved is some hundred bytes, never a whole screen."""

from __future__ import annotations

import shutil

import pytest

from tests.benchmarks.followed_run import followed_run
from tests.benchmarks.peers import OURS, commands, fake_box, opened
from tests.benchmarks.screen_cost import settle
from tests.fake_nvml.scenario import Scenario, a100

MOST_BYTES_S = 900.0
"""Twice the budget; a repainted panel alone is some kilobytes."""
WATCHED_S = 3.0
LONGEST_OPENING_S = 20
"""Within this a dialog has been drawn, and the figures below it move on."""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the fake driver")
def test_moving_figures_repaint_no_panel() -> None:
    box = fake_box(Scenario(gpus=(a100(0), a100(1))))
    with box as (environment, folder), opened(commands()[OURS], environment, folder) as terminal:
        settle(terminal)
        cost = terminal.watch(WATCHED_S)
        terminal.press(b"?")
        assert any(0 < terminal.watch(1.0).written_bytes < MOST_BYTES_S for _ in range(LONGEST_OPENING_S))
    assert 0 < cost.bytes_s < MOST_BYTES_S


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the fake driver")
def test_a_run_that_tells_much_repaints_no_panel() -> None:
    box = fake_box(Scenario(gpus=(a100(0), a100(1))))
    with (
        box as (environment, folder),
        followed_run(environment, folder),
        opened(commands()[OURS], environment, folder) as terminal,
    ):
        settle(terminal)
        cost = terminal.watch(2 * WATCHED_S)
    assert 0 < cost.bytes_s < MOST_BYTES_S
