"""The two compared programs, with the same fake driver and the same kind of terminal."""

from __future__ import annotations

import compileall
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.screen.terminal import Terminal
from tests.fakes.nvml.build import NO_COMPILER, build_library
from tests.fakes.nvml.scenario import Scenario
from tuner_tui import __file__ as package

OURS = "tuner-tui"
PEER = "nvitop"
SSH_TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
"""Environment over SSH: OpenSSH forwards TERM but not COLORTERM."""


def commands() -> dict[str, list[str]]:
    """Commands of the installed programs; this package is compiled first, as after an installation."""
    compileall.compile_dir(Path(package).parent, quiet=1)
    beside = Path(sys.executable).parent
    commands_by_name = {OURS: [str(beside / "tuner-tui")]}
    if (beside / PEER).exists():
        commands_by_name[PEER] = [str(beside / PEER), "--interval", "1"]
    else:
        print(f"{PEER} is not installed beside {sys.executable}: no figures to compare with (pip install {PEER})")
    return commands_by_name


@contextmanager
def fake_box(scenario: Scenario) -> Iterator[tuple[dict[str, str], Path]]:
    """Environment of a process that sees the GPUs of `scenario`, and a working folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build_library(folder)
        if library is None:
            raise SystemExit(f"skipped: {NO_COMPILER}")
        folders = {key: str(folder / key.lower()) for key in ("TUNER_STATE_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
        yield {**scenario.environment(library, folder), **folders, **SSH_TERMINAL}, folder


def machine() -> str:
    """Number and load of the CPU cores, since figures from a busy machine are unreliable."""
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def open_terminal(command: list[str], environment: Mapping[str, str], folder: Path) -> Terminal:
    """Start `command` in a terminal of 120 × 40 cells."""
    return Terminal(command, environment, folder)
