"""Why a training process ended: what the kernel, the cgroup and the end of the log say."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

LOG_TAIL_BYTES = 16_384
_OUT_OF_MEMORY = re.compile(
    rb"^(?:\[rank\d+\]: ?)?(?:[\w.]*MemoryError\b"
    rb"|[\w.]*(?:RuntimeError|AcceleratorError|OSError)"
    rb".*(?:out of memory|can't allocate memory|Cannot allocate memory))",
    re.MULTILINE,
)

_COMPLAINT = re.compile(r"(?:[\w./-]+: )?(?:fatal )?error: (?=\S)", re.IGNORECASE)
_ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_DEAD_RANK = re.compile(rb"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")
_KILLED = re.compile(rb"killed by signal: Killed|exitcode *: *-9\b|Signal 9 \(SIGKILL\)|died with <Signals\.SIGKILL")


@dataclass(frozen=True, slots=True)
class DeadRank:
    """The rank that torchrun names as the first to fail; an exit code below 0 is minus the signal."""

    rank: int
    exit_code: int


def cgroup_kills(pid: int | str = "self") -> int | None:
    """How many processes of the cgroup of `pid` the kernel has killed for memory so far; None where unknown.

    Read from `memory.events` (cgroup 2) or `memory.oom_control` (cgroup 1).
    """
    for path in _counter_files(pid):
        try:
            found = re.search(r"^oom_kill (\d+)$", path.read_text("ascii", "replace"), re.MULTILINE)
        except OSError:
            continue
        if found:
            return int(found[1])
    return None


def kernel_log_kill(pid: int) -> str | None:
    """The kernel log's line that says it killed `pid` for memory; None where there is none or it may not be read."""
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _find_kill(descriptor, pid)
    finally:
        os.close(descriptor)


def log_says_out_of_memory(path: Path) -> str | None:
    """The line near the end of the log in which an allocation failure ended the program, or None."""
    found = list(_OUT_OF_MEMORY.finditer(_log_tail(path)))
    return found[-1][0].decode("utf-8", "replace")[:200] if found else None


def log_says_why(path: Path) -> str | None:
    """The log's last line where it is a complaint (`error: …`, as of argparse, pip or a shell), without escapes."""
    lines = _ESCAPE.sub(b"", _log_tail(path)).replace(b"\r", b"\n").strip().rsplit(b"\n", 1)
    text = lines[-1].decode("utf-8", "replace").strip()
    said = _COMPLAINT.match(text)
    return "".join(char for char in text[said.end() :] if char.isprintable())[:300].rstrip(". ") if said else None


def log_says_killed(path: Path) -> bool:
    """Whether the end of the log says that a process of the training was killed: a loader worker, a rank."""
    return _KILLED.search(_log_tail(path)) is not None


def log_names_dead_rank(path: Path) -> DeadRank | None:
    """The rank that torchrun, or accelerate by it, names at the end of the log; None where it names none."""
    found = _DEAD_RANK.search(_log_tail(path))
    return None if found is None else DeadRank(int(found[2]), int(found[1]))


def _log_tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            return file.read(LOG_TAIL_BYTES)
    except OSError:
        return b""


def _counter_files(pid: int | str) -> list[Path]:
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    files = []
    for line in lines:
        number, controllers, where = [*line.split(":", 2), "", ""][:3]
        if number == "0":
            files += [Path(f"/sys/fs/cgroup{where}/memory.events"), Path("/sys/fs/cgroup/memory.events")]
        elif "memory" in controllers.split(","):
            files += [Path(f"/sys/fs/cgroup/memory{at}/memory.oom_control") for at in (where, "")]
    return files


def _find_kill(descriptor: int, pid: int) -> str | None:
    wanted = re.compile(rf"[Kk]illed process {pid} \(")
    found = None
    while True:
        try:
            record = os.read(descriptor, 8192).decode("utf-8", "replace")
        except BrokenPipeError:  # the oldest record was overwritten meanwhile; the next read goes on behind it
            continue
        except OSError:  # the end of the log
            return found
        if wanted.search(record):
            found = record.partition(";")[2].splitlines()[0][:200]
