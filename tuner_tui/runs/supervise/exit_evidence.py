"""Evidence of why a training process ended: from the kernel, the cgroup and the log."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner_tui.core.files import open_regular
from tuner_tui.runs.log_parsing.launcher_report import LauncherReport, parse_launcher_report
from tuner_tui.runs.log_parsing.lines import LogLine, parse_lines, read_head_and_tail

LOG_TAIL_BYTES = 16_384
OUT_OF_MEMORY_CAUSES = frozenset({"gpu-oom", "host-oom"})
"""Causes that count as out of memory. A full /dev/shm does not: a smaller batch would not help."""
_ERROR_LINE = re.compile(r"(?:[\w./-]+: )?(?:fatal )?error: (?=\S)", re.IGNORECASE)
_MISSING_SCRIPT = re.compile(
    r"^\S*?(python[\d.]*: (?:can't open file .+|No module named .+)"
    r"|(?:ba|da|z|k)?sh: .+: (?:No such file or directory|(?:command )?not found))$",
    re.MULTILINE,
)
_ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_KILLED = re.compile(rb"killed by signal: Killed|exitcode *: *-9\b|Signal 9 \(SIGKILL\)|died with <Signals\.SIGKILL")


@dataclass(frozen=True, slots=True)
class FailedRank:
    """The rank that torchrun reports as the first to fail; a negative exit code is minus the signal."""

    rank: int
    exit_code: int


@dataclass(frozen=True, slots=True)
class LogEvidence:
    """What a log says about the end of a training: an out-of-memory error, the failed rank, a last error message."""

    out_of_memory: str | None = None
    failed_rank: FailedRank | None = None
    error: str | None = None


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


def read_log_evidence(path: Path) -> LogEvidence:
    """What the log of a failed training says; empty if it cannot be read."""
    try:
        lines = parse_lines(read_head_and_tail(path))
    except OSError:
        return LogEvidence()
    report = parse_launcher_report(lines)
    return LogEvidence(_memory_error(lines, report), _failed_rank(report), _last_error(path))


def _memory_error(lines: Sequence[LogLine], report: LauncherReport) -> str | None:
    """The fatal failure if it is certainly an out-of-memory error; found as `diagnose` finds it."""
    from tuner_tui.runs.log_parsing.fatal_failure import find_fatal_failure  # patterns are only needed on failure

    match = find_fatal_failure(lines, report, exited_badly=True)
    certain = match is not None and match.pattern is not None and match.pattern.confidence == "certain"
    return match.failure.headline[:200] if match and certain and match.cause in OUT_OF_MEMORY_CAUSES else None


def _failed_rank(report: LauncherReport) -> FailedRank | None:
    code = report.exit_code if report.signal is None else -report.signal
    return None if report.rank is None or code is None else FailedRank(report.rank, code)


def _last_error(path: Path) -> str | None:
    """A script or command that does not exist, as Python or a shell says; else the last line, if it is an error
    message."""
    tail = read_log_tail(path)
    missing = _MISSING_SCRIPT.search(tail)
    if missing is not None:
        return _printable(missing[1])
    text = tail.rpartition("\n")[2].strip()
    found = _ERROR_LINE.match(text)
    return None if found is None else _printable(text[found.end() :])


def _printable(text: str) -> str:
    return "".join(filter(str.isprintable, text))[:300].rstrip(". ")


def read_log_tail(path: Path) -> str:
    """The end of the log without escape sequences; empty if it cannot be read."""
    return _ESCAPE.sub(b"", _log_tail(path)).replace(b"\r", b"\n").decode("utf-8", "replace").strip()


def logged_kill(path: Path) -> bool:
    """Whether the end of the log says that a process of the training was killed: a loader worker, a rank."""
    return _KILLED.search(_log_tail(path)) is not None


def _log_tail(path: Path) -> bytes:
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
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
        except BrokenPipeError:  # the oldest record was overwritten; the next read continues after it
            continue
        except OSError:  # the end of the log
            return found
        if wanted.search(record):
            found = record.partition(";")[2].splitlines()[0][:200]
