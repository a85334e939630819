"""Why a training process ended, as told by the kernel, the cgroup and the end of the log."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tuner_tui.runs.log_parsing import lines
from tuner_tui.runs.log_parsing.launcher_report import parse_launcher_report
from tuner_tui.runs.log_parsing.lines import LogLine, parse_lines

LOG_TAIL_BYTES = 16_384
OUT_OF_MEMORY_CAUSES = frozenset({"gpu-oom", "host-oom"})
"""Causes that count as out of memory. A full /dev/shm does not: a smaller batch would not help."""
_ERROR_LINE = re.compile(r"(?:[\w./-]+: )?(?:fatal )?error: (?=\S)", re.IGNORECASE)
_ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_KILLED = re.compile(rb"killed by signal: Killed|exitcode *: *-9\b|Signal 9 \(SIGKILL\)|died with <Signals\.SIGKILL")


@dataclass(frozen=True, slots=True)
class FailedRank:
    """The rank that torchrun reports as the first to fail; a negative exit code is minus the signal."""

    rank: int
    exit_code: int


def cgroup_oom_kills(pid: int | str = "self") -> int | None:
    """Processes in the cgroup of `pid` that the kernel has killed for memory so far; None if unknown.

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


def kernel_log_oom_kill(pid: int) -> str | None:
    """The line of the kernel log that says it killed `pid` for memory; None if there is none or it cannot be read."""
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _find_kill(descriptor, pid)
    finally:
        os.close(descriptor)


def logged_out_of_memory(path: Path) -> str | None:
    """What the log says of the failure that ended the program, where that was certainly for want of memory, or None.

    Read as the diagnosis reads it, for a program that ended badly.
    """
    from tuner_tui.runs.log_parsing.fatal_failure import find_fatal_failure

    lines = _log_lines(path)
    reading = find_fatal_failure(lines, parse_launcher_report(lines), True)
    certain = reading is not None and reading.pattern is not None and reading.pattern.confidence == "certain"
    return reading.failure.headline[:200] if certain and reading and reading.cause in OUT_OF_MEMORY_CAUSES else None


def logged_error(path: Path) -> str | None:
    """The last line of the log if it is an error message (`error: …` of argparse, pip or a shell)."""
    lines = _ESCAPE.sub(b"", _log_tail(path)).replace(b"\r", b"\n").strip().rsplit(b"\n", 1)
    text = lines[-1].decode("utf-8", "replace").strip()
    said = _ERROR_LINE.match(text)
    return "".join(char for char in text[said.end() :] if char.isprintable())[:300].rstrip(". ") if said else None


def logged_kill(path: Path) -> bool:
    """Whether the end of the log says that a process of the training was killed: a loader worker, a rank."""
    return _KILLED.search(_log_tail(path)) is not None


def logged_failed_rank(path: Path) -> FailedRank | None:
    """The rank that torchrun, or accelerate through it, reports as failed; None if there is none."""
    said = parse_launcher_report(_log_lines(path))
    code = said.exit_code if said.signal is None else -said.signal
    return None if said.rank is None or code is None else FailedRank(said.rank, code)


def _log_lines(path: Path) -> tuple[LogLine, ...]:
    """Head and tail of the log; empty if it cannot be read."""
    try:
        return parse_lines(lines.read_head_and_tail(path))
    except OSError:
        return ()


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
