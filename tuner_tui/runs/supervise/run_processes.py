"""The processes of a run, those that outlive its training, and how one is started that outlives its starter.

A process belongs to a run if it is below the supervisor, which is their subreaper, or below the training. What holds
after the supervisor and the launcher of the ranks were killed, too: its environment names the run folder, it has the
output of the run open for writing, or the supervisor has recorded it (one that `env -i`, `sudo` or `su` started).

A cgroup would add nothing to that. It needs a delegated tree, which a login over SSH, most containers and Slurm jobs do
not give.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import IO, TypeVar

from msgspec import Struct

from tuner_tui.core.file_locks import LockedError
from tuner_tui.core.files import closing_descriptor, open_to_append
from tuner_tui.core.procfs import (
    PROC,
    TICKS_PER_S,
    ProcessId,
    ProcessStat,
    all_processes,
    descendants_in,
    end_group,
    is_alive,
    read_command_line,
    read_proc_text,
    send_signal,
)
from tuner_tui.hardware.processes import is_python, read_owner
from tuner_tui.runs.store.folder import RunFolder

Ready = TypeVar("Ready")

PR_SET_CHILD_SUBREAPER = 36
MAX_COMMAND_LENGTH = 120
RUN_VARIABLE = "TUNER_RUN_DIR"
"""Set in the environment of every training; its value is the run folder."""
_WITHOUT_SITE = re.compile(r"-[^-cmWX]*[EIS]")
"""Options of Python that ignore its environment, isolate it or leave `sitecustomize` out, alone or as in `-uE`."""
OBSERVER_SITE = Path(__file__).parents[2] / "observer" / "site"
"""The folder whose `sitecustomize` installs the observer in every Python process of the training."""


class RunProcesses(Struct, frozen=True):
    """Living processes of a run: `members` are in the session of the training or of an observed rank, or are observed;
    `detached` started their own session, as a daemon does. `tied` are the pids that are known to be of the run by
    themselves, not by what is above them."""

    members: tuple[ProcessStat, ...] = ()
    detached: tuple[ProcessStat, ...] = ()
    tied: frozenset[int] = frozenset()

    def names(self) -> str:
        """Pids and commands in one line, of those that are still alive; empty if there are none."""
        processes = [process for process in (*self.members, *self.detached) if is_alive(process)]
        named = ", ".join(f"{process.pid} ({_describe(process.pid)})" for process in processes[:3])
        return named + (f" and {len(processes) - 3} more" if len(processes) > 3 else "")

    def with_tied(self) -> RunProcesses:
        """The same, with the detached processes that are tied to the run among its members."""
        tied = tuple(process for process in self.detached if process.pid in self.tied)
        untied = tuple(process for process in self.detached if process.pid not in self.tied)
        return RunProcesses((*self.members, *tied), untied, self.tied)

    def of_others(self) -> RunProcesses:
        """The living ones that only another user can end, as after `sudo`."""
        members = tuple(
            process for process in self.members if is_alive(process) and _other_user(process.pid) is not None
        )
        return RunProcesses(members, (), self.tied)


def _describe(pid: int) -> str:
    """The command of a process, and its user if only that one can end it."""
    command, user = " ".join(read_command_line(pid))[:MAX_COMMAND_LENGTH], _other_user(pid)
    return command if user is None else f"{command}; only {user} can end it"


def _other_user(pid: int) -> str | None:
    """The user of a process that this user may not signal; None if it may, or if the process is gone."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return read_owner(pid)
    except ProcessLookupError:
        pass
    return None


def become_subreaper() -> bool:
    """Make orphans of the training children of this process, not of init. False if the kernel refuses."""
    return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


class ProcessSnapshot:
    """The running processes at the moment when they are first asked for. Whoever looks at many runs takes one."""

    def __init__(self) -> None:
        self._named: dict[int, str | None] = {}
        self._written: dict[int, frozenset[tuple[int, int]]] = {}

    @cached_property
    def processes(self) -> list[ProcessStat]:
        """All running processes."""
        return [process for process in all_processes() if process.is_running]

    def names_run(self, pid: int, run: Path) -> bool:
        """Whether the environment of the process names the run folder."""
        if pid not in self._named:
            self._named[pid] = named_run(pid)
        return names_run_folder(run, self._named[pid])

    def writes(self, pid: int, file: tuple[int, int] | None) -> bool:
        """Whether the process has the file of this device and inode open for writing."""
        if pid not in self._written:
            self._written[pid] = _written_files(pid)
        return file in self._written[pid]


def _written_files(pid: int) -> frozenset[tuple[int, int]]:
    """Device and inode of each file that the process has open for writing; empty where that cannot be read."""
    files = set()
    with suppress(OSError):  # it has ended, or belongs to another user
        for link in Path(f"{PROC}/{pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                # The mode of the link is that of the descriptor: who only reads, such as `tail -f`, does not count.
                if link.lstat().st_mode & stat.S_IWUSR and (file := _identify_file(link)) is not None:
                    files.add(file)
    return frozenset(files)


def find_processes(
    run: Path | None,
    training: ProcessId,
    observed: Collection[int] = (),
    subreaper: int | None = None,
    snapshot: ProcessSnapshot | None = None,
    recorded: Collection[ProcessId] = (),
) -> RunProcesses:
    """The living processes of a run, the training among them.

    `run` is its folder; None if that was deleted, as another run may have its name. `observed` are pids that the ranks
    reported, `recorded` those of `SupervisorState.apart`; `subreaper` is the supervisor if it supervised the run from
    its start. A pid alone proves nothing: it may be another process by now.
    """
    snapshot = snapshot or ProcessSnapshot()
    processes = snapshot.processes
    # Ways that miss different processes: the environment misses what cleared it, the output what closed it, the record
    # what started a moment before the supervisor died, descent what another supervisor had as a child, the session what
    # left it. Environments and files are read only of processes that started after the training: reading those of all
    # is most of the cost of a look.
    output = None if run is None else _identify_file(RunFolder(run).output_log)
    tied = frozenset(
        process.pid
        for process in processes
        if run is not None
        and process.start_ticks >= training.start_ticks
        and process.pid not in (os.getpid(), subreaper)
        if ProcessId(process.pid, process.start_ticks) in recorded
        or snapshot.names_run(process.pid, run)
        or snapshot.writes(process.pid, output)
    )
    by_pid = {process.pid: process for process in processes if process.pid in tied}
    alive = is_alive(training)
    roots = ([subreaper] if subreaper is not None else []) + ([training.pid] if alive else [])
    by_pid |= {process.pid: process for process in descendants_in(processes, [*roots, *tied])}
    if alive:
        by_pid |= {process.pid: process for process in processes if process.session == training.pid}
    sessions = {training.pid, *observed}
    members = tuple(process for process in by_pid.values() if sessions & {process.pid, process.session})
    detached = tuple(process for process in by_pid.values() if not sessions & {process.pid, process.session})
    return RunProcesses(members, detached, tied)


def find_without_folder(run: Path, snapshot: ProcessSnapshot | None = None) -> RunProcesses:
    """The living processes of a run whose folder was deleted: those whose environment names it, and what they started.

    Only for a folder that does not exist, or another run of its name may have these processes.
    """
    return find_processes(run, ProcessId(0, 0), snapshot=snapshot).with_tied()


def _identify_file(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


MAX_APART = 64
"""Processes recorded of a run; all of them fit into its padded `state.json`."""
SETTLED_S = 10.0
"""Age at which a process executes the program that it will run to its end."""


class ApartProcesses:
    """The processes below the supervisor that would not be known as those of the run after its death.

    They have left the session of the training, and their environment does not name the run. What this program starts
    in the background from inside a training is not of its run.
    """

    def __init__(self, run: Path, training: ProcessId) -> None:
        self._run = run
        self._training = training
        self._judged: dict[ProcessId, bool] = {}

    def look(self) -> tuple[ProcessId, ...]:
        """Those that live now, the newest ones where they are many."""
        processes = list(all_processes())
        living = {
            ProcessId(process.pid, process.start_ticks): process for process in descendants_in(processes, [os.getpid()])
        }
        new = [process for identity, process in living.items() if identity not in self._judged]
        words = {process.pid: read_command_line(process.pid) for process in new}
        by_us = (pid for pid, command in words.items() if "".join(command[3:4]).startswith("tuner_tui."))
        detached = {pid for pid in by_us if words[pid][1:3] == ("-P", "-m")}  # as `open_detached` starts them
        below = {process.pid for process in descendants_in(processes, detached)} if detached else set()
        judged = {
            identity: self._judged[identity]
            if identity in self._judged
            else process.pid not in detached | below
            and process.session != self._training.pid
            and not names_run_folder(self._run, named_run(process.pid))
            for identity, process in living.items()
        }
        # A young process may still be `env` or `su`, which becomes the rank in a moment.
        settled_ticks = (time.clock_gettime(time.CLOCK_BOOTTIME) - SETTLED_S) * TICKS_PER_S
        self._judged = {identity: apart for identity, apart in judged.items() if identity.start_ticks < settled_ticks}
        return tuple(identity for identity, apart in judged.items() if apart)[-MAX_APART:]


def left_out_observer(pid: int) -> str | None:
    """Why no observer was started in a process that has loaded torch, None if there is no reason."""
    if str(OBSERVER_SITE) not in (_read_variable(pid, "PYTHONPATH") or "").split(os.pathsep):
        reason = "the command replaces PYTHONPATH, which starts the observer: extend it, PYTHONPATH=src:$PYTHONPATH"
    else:
        command = read_command_line(pid)
        options = takewhile(lambda word: word.startswith("-"), command[1:] if is_python(command) else ())
        option = next(filter(_WITHOUT_SITE.match, options), None)
        if option is None:
            return None
        reason = f"python {option} ignores PYTHONPATH, which starts the observer: leave the option out"
    return reason if "libtorch" in read_proc_text(f"{PROC}/{pid}/maps") else None


def named_run(pid: int) -> str | None:
    """The run folder that the environment of the process names; None if it names none or cannot be read."""
    return _read_variable(pid, RUN_VARIABLE)


def _read_variable(pid: int, name: str) -> str | None:
    try:
        with open(f"{PROC}/{pid}/environ", "rb") as file:  # noqa: PTH123  read for every process of the machine
            environment = file.read()
    except OSError:
        return None
    _, separator, value = (b"\0" + environment).partition(f"\0{name}=".encode())
    return os.fsdecode(value.partition(b"\0")[0]) if separator else None


def names_run_folder(run: Path, named: str | None) -> bool:
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
    with closing_descriptor(open_to_append(log)) as descriptor:
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


START_TIMEOUT_S = 60.0
"""For the start of Python and its imports on a busy machine with a cold disk."""


def finish_start(
    process: subprocess.Popen[bytes], data: bytes | None = None, timeout_s: float = START_TIMEOUT_S
) -> bytes:
    """Wait until a process of `open_detached` runs in the background; return what it has answered.

    One that takes longer than `timeout_s` seconds is ended, so that it does not start anything later; its answer is
    empty, and its exit code that of SIGKILL.
    """
    with process:
        try:
            return process.communicate(data, timeout_s)[0] or b""
        except subprocess.TimeoutExpired:
            end_group(process.pid)
    return b""


def detach(prepare: Callable[[bytes], Ready]) -> Ready:
    """In the new process: read the input, detach from the parent, and answer whether `prepare` succeeded.

    `prepare` turns the input into what the process needs, its locks included. If it raises `ValueError`, `OSError` or
    `LockedError`, the message is the answer and the process exits.
    """
    data = sys.stdin.buffer.read()
    # The starter gave this process a session of its own, so that no terminal reaches it. The second process leads no
    # session, hence can get no terminal by opening one, and belongs to init, so that the starter leaves no zombie.
    if os.fork():
        os._exit(0)
    try:
        prepared, answer = prepare(data), "ok"
    except (ValueError, OSError, LockedError) as error:
        prepared, answer = None, describe_failure(error)
    with suppress(OSError):  # the starter has ended meanwhile
        os.write(1, answer.encode("utf-8", "replace"))
    if prepared is None:
        sys.exit(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return prepared


def describe_failure(error: Exception) -> str:
    """The message of an exception, the reason first if it is one of the system."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) or type(error).__name__
