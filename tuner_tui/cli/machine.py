"""The machine the commands run on, its inventory and the Python that trains, and options that describe another."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from msgspec import Struct

from tuner_tui.cli.console import fail, print_note
from tuner_tui.core.daemon_thread import daemon_call
from tuner_tui.core.units import MIB, parse_size
from tuner_tui.hardware.detect import TIMEOUT_S, read_inventory
from tuner_tui.hardware.interpreter import Interpreter, default_interpreter, is_cached, probe_interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.hardware.known_gpus import PlannedGpus, UnknownGpuError, parse_planned_gpus
from tuner_tui.runs.store.folder import state_dir
from tuner_tui.settings.errors import SettingsError


class LocalMachine(Struct, frozen=True):
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


def read_training_machine(given: Path | None) -> LocalMachine:
    """Return this machine; exit with 2 if `given`, the path of `--interpreter`, is no Python: do not ask it again."""
    machine = read_local_machine(given)
    if given is not None:
        refuse_no_python(machine.interpreter)
    return machine


def refuse_no_python(interpreter: Interpreter) -> None:
    """Exit with 2 if the interpreter that was named is no Python."""
    if interpreter.python_version is None:
        fail(f"--interpreter: {interpreter.problem}")


def parse_memory_limit(text: str | None) -> int | None:
    """Return the bytes of `--memory-limit`. Raises `SettingsError`, also below 1 MiB: the unit is missing then."""
    if text is None:
        return None
    size = parse_size(text)
    if not size:
        raise SettingsError(f"--memory-limit: {text!r} is not a size (try 6GiB or 800MB).")
    if size < MIB:
        raise SettingsError(f"--memory-limit: {text!r} is only {size:,} bytes; add a unit, such as 6GiB or 800MB.")
    return size


def parse_gpus(text: str) -> tuple[PlannedGpus, ...]:
    """Parse `--gpu`. Raises `SettingsError` for an unknown GPU."""
    try:
        return tuple(parse_planned_gpus(text))
    except UnknownGpuError as error:
        raise SettingsError(f"--gpu: {error}") from error
