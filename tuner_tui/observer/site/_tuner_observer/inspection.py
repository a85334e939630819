"""Answers where this process is: the stacks of its threads, and PyTorch's record of its collectives.

Both answers are written to files in memory (memfd_create(2)), which the reader opens by their names in `/proc/PID/fd`:
that needs no disk, no other permission than that of the same user, and nothing is left behind.

- `tuner-stacks:SIGNAL:PID`: the stacks. On the signal after this one, the main thread writes them between two
  instructions of Python. On this one, `faulthandler` writes them within the signal handler, also while a thread holds
  the interpreter lock in C; of a thread that moves meanwhile it reads freed frames, which ends the process. On the
  second one after it, it writes those of the main thread only.
- `tuner-collectives:FD:PID`: JSON and a newline, written by a thread that waits for a byte in the pipe `FD`.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would import `enum` into every process
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # a process without torch should not import `typing`
    from typing import Any

FIRST_FD = 200
"""Programs may rely on the numbers of the first descriptors that they open."""


class StackDump:
    """The handlers of this process. The first real-time signals in a row that nothing else handles are taken."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self._signal: int | None = None

    def register(self) -> None:
        """Install the handler; again in a forked child, which would write to the file of its parent."""
        if not hasattr(os, "memfd_create"):
            return
        import faulthandler

        previous, self._fd = self._fd, None
        if self._signal is None:
            numbers = range(_signal.SIGRTMIN + 7, _signal.SIGRTMAX)
            unused = {number for number in numbers if _signal.getsignal(number) == _signal.SIG_DFL}
            self._signal = next((number for number in numbers if unused.issuperset(_three(number))), None)
            if self._signal is None:
                return
            _signal.signal(self._signal + 1, self._write)
            _signal.siginterrupt(self._signal + 1, False)
        self._fd = memory_file(f"tuner-stacks:{self._signal}")
        faulthandler.register(self._signal, file=self._fd, all_threads=True, chain=False)
        faulthandler.register(self._signal + 2, file=self._fd, all_threads=False, chain=False)
        if previous is not None:
            os.close(previous)

    def hook_signal(self) -> None:
        """Remove the handler when the program installs one of its own for the signal."""
        original = _signal.signal

        def hooked(*arguments: Any) -> Any:
            if self._fd is not None and self._signal and arguments and arguments[0] in _three(self._signal):
                import faulthandler

                faulthandler.unregister(self._signal)
                faulthandler.unregister(self._signal + 2)
                os.close(self._fd)
                self._fd = self._signal = None  # a forked child takes others
            return original(*arguments)

        hooked.__name__, hooked.__doc__ = original.__name__, original.__doc__
        _signal.signal = hooked  # `signal.signal` calls it

    def _write(self, *_: Any) -> None:
        if self._fd is not None:
            import faulthandler

            faulthandler.dump_traceback(self._fd, all_threads=True)


def _three(number: int) -> range:
    return range(number, number + 3)


class CollectiveDump:
    """Writes what `torch.distributed` has recorded of its collectives whenever it is asked to."""

    def __init__(self) -> None:
        self._pid: int | None = None

    def start(self) -> None:
        """Start the thread that waits for requests, once a process; it takes no time until then."""
        if self._pid == os.getpid() or not hasattr(os, "memfd_create"):
            return
        from _thread import start_new_thread

        self._pid = os.getpid()
        requests, wake = os.pipe()
        start_new_thread(_answer_requests, (_move_up(requests), memory_file(f"tuner-collectives:{_move_up(wake)}")))


def memory_file(name: str) -> int:
    """Create a file in memory of this name and process, and return its descriptor."""
    return _move_up(os.memfd_create(f"{name}:{os.getpid()}"))


def _move_up(fd: int) -> int:
    import fcntl

    try:
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FD)
    except OSError:  # the limit of open files is lower
        return fd
    os.close(fd)
    return moved


def _answer_requests(requests: int, answers: int) -> None:
    try:
        while os.read(requests, 1):
            os.write(answers, _recorded_collectives() + b"\n")
    except OSError:
        return


def _recorded_collectives() -> bytes:
    """One JSON object: rank and world size, and what the recorder of this release returns (null: it has none)."""
    import json

    from .process_role import rank_and_world

    rank, world_size = rank_and_world()
    c10d = getattr(getattr(sys.modules.get("torch"), "_C", None), "_distributed_c10d", None)
    dump = getattr(c10d, "_dump_fr_trace_json", None) or getattr(c10d, "_dump_nccl_trace_json", None)
    head = json.dumps({"rank": rank, "world_size": world_size})
    try:
        record = b"null" if dump is None else dump(includeCollectives=True, onlyActive=False)
    except (RuntimeError, TypeError):  # another release
        record = b"null"
    record = record.encode() if isinstance(record, str) else record
    return head[:-1].encode() + b', "record": ' + record.replace(b"\n", b" ") + b"}"
