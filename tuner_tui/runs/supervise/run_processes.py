"""The processes of a run, those that outlive its training, and how one is started that outlives its starter.

A process belongs to a run if it is below the supervisor, which is their subreaper, or below the training, or if its
environment names the run folder: that holds after the supervisor and the launcher of the ranks were killed too.

A cgroup would add only processes that leave their session, clear their environment and outlive the supervisor. It needs
a delegated tree, which a login over SSH, most containers and Slurm jobs do not give.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

from tuner_tui.core.files import open_to_append
from tuner_tui.core.procfs import (
    PROC,
    ProcessId,
    ProcessStat,
    all_processes,
    descendants_in,
    is_alive,
    read_command,
    send_signal,
)

PR_SET_CHILD_SUBREAPER = 36
MAX_COMMAND_LENGTH = 120
RUN_VARIABLE = "TUNER_RUN_DIR"
"""Set in the environment of every training; its value is the run folder."""


@dataclass(frozen=True, slots=True)
class RunProcesses:
    """Living processes of a run: `own` are in the session of the training or of an observed rank, or are observed;
    `detached` started their own session, as a daemon does. `marked` are the pids that name the run folder."""

    own: tuple[ProcessStat, ...] = ()
    detached: tuple[ProcessStat, ...] = ()
    marked: frozenset[int] = frozenset()

    def names(self) -> str:
        """Pids and commands in one line, of those that are still alive; empty if there are none."""
        processes = [each for each in (*self.own, *self.detached) if is_alive(each)]
        commands = {each.pid: " ".join(read_command(each.pid))[:MAX_COMMAND_LENGTH] for each in processes[:3]}
        named = ", ".join(f"{pid} ({command})" for pid, command in commands.items())
        return named + (f" and {len(processes) - 3} more" if len(processes) > 3 else "")

    def with_marked(self) -> RunProcesses:
        """The same, with the detached processes that name the run folder among its own."""
        marked = tuple(each for each in self.detached if each.pid in self.marked)
        unmarked = tuple(each for each in self.detached if each.pid not in self.marked)
        return RunProcesses((*self.own, *marked), unmarked, self.marked)


def become_subreaper() -> bool:
    """Make orphans of the training children of this process, not of init. False if the kernel refuses."""
    return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


class ProcessSnapshot:
    """The running processes at the moment when they are first asked for. Whoever looks at many runs takes one."""

    def __init__(self) -> None:
        self._named: dict[int, str | None] = {}

    @cached_property
    def processes(self) -> list[ProcessStat]:
        """All running processes."""
        return [each for each in all_processes() if each.is_running]

    def names_run(self, pid: int, run: Path) -> bool:
        """Whether the environment of the process names the run folder."""
        if pid not in self._named:
            self._named[pid] = named_run(pid)
        return is_named(run, self._named[pid])


def find_processes(
    run: Path | None,
    training: ProcessId,
    observed: Collection[int] = (),
    subreaper: int | None = None,
    snapshot: ProcessSnapshot | None = None,
) -> RunProcesses:
    """The living processes of a run, the training among them.

    `run` is its folder; None if that was deleted, as another run may have its name. `observed` are pids that the ranks
    reported; `subreaper` is the supervisor if it supervised the run from its start. A pid alone proves nothing: it may
    be another process by now.
    """
    snapshot = snapshot or ProcessSnapshot()
    processes = snapshot.processes
    # Three ways that miss different processes: the environment misses what cleared it, descent misses what another
    # supervisor had as a child, the session misses what left it. Environments are read only of processes that started
    # after the training: reading those of all is most of the cost of a look.
    later = (each for each in processes if each.start_ticks >= training.start_ticks and each.pid != os.getpid())
    marked = frozenset(each.pid for each in later if run is not None and snapshot.names_run(each.pid, run))
    by_pid = {each.pid: each for each in processes if each.pid in marked}
    alive = is_alive(training)
    roots = ([subreaper] if subreaper is not None else []) + ([training.pid] if alive else [])
    by_pid |= {each.pid: each for each in descendants_in(processes, roots)}
    if alive:
        by_pid |= {each.pid: each for each in processes if each.session == training.pid}
    sessions = {training.pid, *observed}
    own = tuple(each for each in by_pid.values() if sessions & {each.pid, each.session})
    detached = tuple(each for each in by_pid.values() if not sessions & {each.pid, each.session})
    return RunProcesses(own, detached, marked)


def named_run(pid: int) -> str | None:
    """The run folder that the environment of the process names; None if it names none or cannot be read."""
    try:
        with open(f"{PROC}/{pid}/environ", "rb") as file:  # noqa: PTH123  read for every process of the machine
            environment = file.read()
    except OSError:
        return None
    _, separator, value = (b"\0" + environment).partition(f"\0{RUN_VARIABLE}=".encode())
    return os.fsdecode(value.partition(b"\0")[0]) if separator else None


def is_named(run: Path, named: str | None) -> bool:
    """Whether `named` is a path of the run folder."""
    if named is None:
        return False
    return named == str(run) or (Path(named).name == run.name and os.path.realpath(named) == os.path.realpath(run))


def signal_processes(processes: Iterable[ProcessStat], number: signal.Signals) -> None:
    """Signal each process that still is the same one, and wake those that are stopped: they would not notice."""
    for process in processes:
        send_signal(process, number)
        if process.state == "T":
            send_signal(process, signal.SIGCONT)


SUPERVISOR_MODULE = "tuner_tui.runs.supervise.supervisor"
FALLBACK_MODULE = "tuner_tui.tuning.fallback"
"""Started by its name, since its package is above this one."""


def open_detached(
    module: str,
    arguments: Sequence[str],
    log: Path,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `python -m module arguments` in a session of its own, with its standard error in `log`. Raises `OSError`.

    The module forks once more after it has imported what it needs: init adopts the second process, so that the starter
    waits for a moment only and leaves no zombie.
    """
    descriptor = open_to_append(log)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            cwd="/",
            # A detached process that is started from inside a training belongs to another run, or to none.
            env={name: value for name, value in os.environ.items() if name != RUN_VARIABLE},
            stdin=stdin,
            stdout=stdout,
            stderr=descriptor,
            start_new_session=True,
            pass_fds=pass_fds,
        )
    finally:
        os.close(descriptor)
