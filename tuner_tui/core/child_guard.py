"""Runs one command and ends it with all its descendants: `child_guard.py LIFELINE STATUS COMMAND ARGUMENT…`.

`core.child_process` starts it as a program of its own, so it imports the standard library only. LIFELINE is the reading
end of a pipe, whose closing by the other side, or its death, ends the command. The errno of a command that cannot be
executed is written to STATUS, which closes once it is known. The exit status is that of the command.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
COMM = "tuner-helper"
"""The name of this process. By it, the process and what is below it do not count as jobs of the machine."""
PATIENCE_S = 5.0
"""For the end of descendants after SIGKILL; those of another user never end by it."""


_prctl = ctypes.CDLL(None).prctl


def main(lifeline: int, status: int, command: list[str]) -> int:
    """Run the command; return the exit code, or minus the number of the signal that ended it."""
    _prctl(PR_SET_NAME, COMM.encode(), 0, 0, 0)
    # One that is stopped goes on when its parent dies, and sees that the lifeline is closed.
    _prctl(PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)
    os.set_inheritable(lifeline, False)
    os.set_inheritable(status, False)
    # Two guards, one below the other: where one of them is killed, the other ends what it has left.
    return _guard(
        lifeline,
        status,
        signal.SIGTERM,
        lambda: _exit_like(_guard(lifeline, status, signal.SIGKILL, lambda: _execute(command, status))),
    )


def _guard(lifeline: int, status: int, orphaned: signal.Signals, work: Callable[[], None]) -> int:
    """Do the work in a child, which gets the signal `orphaned` when this process dies; end it with its descendants."""
    # Whoever below this process loses its parent becomes its child, wherever it has forked and whatever its session is.
    _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wakeup, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    ended: list[int] = []
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _nothing)
    signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))
    guard, child = os.getpid(), os.fork()
    if child == 0:
        _prctl(PR_SET_PDEATHSIG, orphaned, 0, 0, 0)
        if os.getppid() == guard:  # else it has died before the line above
            work()
        os._exit(127)
    os.close(status)
    while (code := _reap(child)) is None and not ended and lifeline not in select.select([lifeline, wakeup], [], [])[0]:
        os.read(wakeup, 4096)
    last = _end_descendants(child)
    return code if code is not None else -signal.SIGKILL if last is None else last


def _execute(command: list[str], status: int) -> None:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, which would be inherited
    try:
        os.execvp(command[0], command)  # noqa: S606  a shell would be one process more
    except OSError as error:
        os.write(status, str(error.errno).encode())


def _reap(child: int) -> int | None:
    """Reap all ended children; return the exit code of `child` if it is one of them. Raises `ChildProcessError`."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            return os.waitstatus_to_exitcode(status)
        if pid == 0:
            return None


def _end_descendants(child: int) -> int | None:
    """Kill until nothing is left; return the exit code of `child` if it ended here."""
    # The children of a killed child become children of this process, so each round reaches a generation more, and
    # reading the kernel's own list takes less time than a process needs to fork away.
    deadline_s, code = time.monotonic() + PATIENCE_S, None
    while time.monotonic() < deadline_s:
        try:
            ended = _reap(child)
        except ChildProcessError:
            break
        code = code if ended is None else ended
        for pid in _children():
            try:
                os.kill(pid, signal.SIGKILL)
            except (PermissionError, ProcessLookupError):
                time.sleep(0.01)  # a program of another user, such as sudo
        time.sleep(0.0005)
    return code


def _children() -> list[int]:
    me = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text("ascii").split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _parent(pid) == me]  # noqa: PTH208


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _nothing(number: int, frame: FrameType | None) -> None:
    """Only wakes up `select`; a handler, since the command would inherit an ignored signal."""


def _exit_like(code: int) -> None:
    """End as the command did."""
    if code >= 0:
        os._exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


if __name__ == "__main__":
    _exit_like(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
