"""`control`: one word that asks a run to checkpoint or stop."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Literal, get_args

from tuner_tui.core.files import open_regular, overwrite, write_atomic
from tuner_tui.core.procfs import send_signal, this_machine
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.supervisor_state import read_supervisor_state

Order = Literal["checkpoint", "stop", "terminate", "kill"]
"""Checkpoint now; checkpoint and stop after this step; SIGTERM now; SIGTERM, then SIGKILL after a short timeout."""
ORDER_BYTES = 64
"""The file has this size from the launch on, so that an order needs no disk space."""
ORDERS: tuple[Order, ...] = get_args(Order)


def send_order(folder: RunFolder, order: Order) -> None:
    """Write an order and wake the supervisor. Raises `OSError`."""
    write_order(folder.control, order)
    known = read_supervisor_state(folder.state)
    if known is not None and known.machine == this_machine():
        send_signal(known.supervisor, signal.SIGUSR1)  # it checks once a second anyway


def write_order(path: Path, order: Order) -> None:
    """Write an order over an earlier one, in place. Raises `OSError`."""
    content = f"{order:<{ORDER_BYTES - 1}}\n".encode("ascii")
    try:
        overwrite(path, content)
    except FileNotFoundError:
        write_atomic(path, content)


def reserve_control(folder: RunFolder) -> None:
    """Create the files of orders with their full size, so that an order needs no disk space. Raises `OSError`."""
    for path in (folder.control, folder.agreed):
        write_atomic(path, b"\n".rjust(ORDER_BYTES))


def read_order(path: Path) -> tuple[Order, int] | None:
    """The order and the time it was written (nanoseconds), or None. The same order written twice has two times."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            word = file.read(ORDER_BYTES).decode("ascii", "replace").strip()
            moment = os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None
    return (word, moment) if word in ORDERS else None
