"""The machine the commands run on: its inventory and the Python that trains."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from tuner_tui.cli.console import print_note
from tuner_tui.core.daemon_thread import daemon_call
from tuner_tui.hardware.detect import TIMEOUT_S, read_inventory
from tuner_tui.hardware.interpreter import Interpreter, default_interpreter, is_cached, probe_interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.store.folder import state_dir


@dataclass(frozen=True, slots=True)
class LocalMachine:
    """The inventory of the machine and the Python that trains."""

    inventory: Inventory
    interpreter: Interpreter


ReadMachine = Callable[[Path | None], LocalMachine]
"""Reads the machine; the path is the Python that trains, None means the one the shell would use."""


def start_reading_inventory(gpu_timeout_s: float = TIMEOUT_S) -> Future[Inventory]:
    """Read the inventory while something else is done; GPUs that take longer are listed as a problem."""
    return daemon_call(lambda: read_inventory(state_dir(), timeout_s=gpu_timeout_s))


def read_local_machine(interpreter: Path | None, reading: Future[Inventory] | None = None) -> LocalMachine:
    """Return this machine, with the inventory of `reading` if that was started before.

    Prints a note on a terminal when the interpreter is not cached: probing takes seconds.
    """
    python = default_interpreter(os.environ) if interpreter is None else interpreter
    if sys.stderr.isatty() and not is_cached(python):
        print_note(f"Reading the packages of {python} (a few seconds, once).")
    reading = reading or start_reading_inventory()
    probed = probe_interpreter(python)
    return LocalMachine(reading.result(threading.TIMEOUT_MAX), probed)
