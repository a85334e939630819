"""Looks into a run of this machine at once: where its processes are, and what it waits for."""

from __future__ import annotations

import time

from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.supervisor_state import read_supervisor_state
from tuner_tui.runs.supervise.run_processes import find_processes
from tuner_tui.runs.supervise.stall import Inspection, inspect_run


def inspect_folder(folder: RunFolder) -> Inspection:
    """Ask the processes of the run; takes two seconds at most. Raises `LookupError` if none of them is here."""
    status = read_status(folder)
    supervision = read_supervisor_state(folder.state)
    if not status.live or supervision is None or supervision.training is None:
        raise LookupError(f"{folder.id} has no process here that could answer. {status.sentence}")
    processes = find_processes(folder.path, supervision.training, recorded=supervision.apart)
    everybody = (*processes.own, *processes.detached)
    return inspect_run(everybody, RunReader(folder).poll().state, supervision.machine.host, time.time())
