"""Evidence of how a training ended: its exit, its log, the kernel log, the cgroup, a taken port."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner_tui.core.files import open_regular
from tuner_tui.core.procfs import PROC, read_command, read_text
from tuner_tui.core.redaction import redact_argv
from tuner_tui.hardware.system_info import Cgroups, listening_pids
from tuner_tui.runs.events.types import Exited
from tuner_tui.runs.log_parsing.failures import LauncherReport, parse_launcher_report
from tuner_tui.runs.log_parsing.lines import ANSI, LogLine, parse_lines, read_head_and_tail
from tuner_tui.runs.supervise.run_processes import named_run
from tuner_tui.runs.supervise.training_process import ExitStatus

LOG_TAIL_BYTES = 16_384
"""Messages of launchers, loaders and shells about an exit are the last ones, and short."""
OUT_OF_MEMORY_CAUSES = frozenset({"gpu-oom", "host-oom"})
"""Causes that count as out of memory. A full /dev/shm does not: a smaller batch would not help."""
_ERROR_LINE = re.compile(r"(?:[\w./-]+: )?(?:fatal )?error: (?=\S)", re.IGNORECASE)
_MISSING_SCRIPT = re.compile(
    r"^\S*?(python[\d.]*: (?:can't open file .+|No module named .+)"
    r"|(?:ba|da|z|k)?sh: .+: (?:No such file or directory|(?:command )?not found))$",
    re.MULTILINE,
)
_FAILED_NODE = re.compile(r"^(?:\d+: )?srun: error: Node failure on (\S+)", re.MULTILINE)
_KILLED = re.compile(r"killed by signal: Killed|exitcode *: *-9\b|Signal 9 \(SIGKILL\)|died with <Signals\.SIGKILL")


@dataclass(frozen=True, slots=True)
class FailedRank:
    """The rank that torchrun reports as the first to fail; a negative exit code is minus the signal."""

    rank: int
    exit_code: int


@dataclass(frozen=True, slots=True)
class LogEvidence:
    """What a log says about the end of a training: an out-of-memory error, the failed rank, a last error message, and
    the node that failed by a message of srun."""

    out_of_memory: str | None = None
    failed_rank: FailedRank | None = None
    error: str | None = None
    failed_node: str | None = None


NO_EVIDENCE = LogEvidence()


def cgroup_oom_kills(proc: Path = PROC) -> int | None:
    """Processes in the cgroup of this process that the kernel has killed for memory so far; None if unknown.

    Read from `memory.events` (cgroup 2) or `memory.oom_control` (cgroup 1).
    """
    for folder in Cgroups.of_this_process(proc).memory:
        for name in ("memory.events", "memory.oom_control"):
            found = re.search(r"^oom_kill (\d+)$", read_text(folder / name), re.MULTILINE)
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
    tail = read_log_tail(path)
    node = _FAILED_NODE.search(tail)
    return LogEvidence(
        _memory_error(lines, report),
        _failed_rank(report),
        _last_error(tail),
        None if node is None else _printable(node[1]),
    )


def _memory_error(lines: Sequence[LogLine], report: LauncherReport) -> str | None:
    """The fatal failure if it is certainly an out-of-memory error; found as `diagnose` finds it."""
    from tuner_tui.runs.log_parsing.fatal_failure import find_fatal_failure  # patterns are only needed on failure

    match = find_fatal_failure(lines, report, exited_badly=True)
    certain = match is not None and match.pattern is not None and match.pattern.confidence == "certain"
    return match.failure.headline[:200] if match and certain and match.cause in OUT_OF_MEMORY_CAUSES else None


def _failed_rank(report: LauncherReport) -> FailedRank | None:
    code = report.exit_code if report.signal is None else -report.signal
    return None if report.rank is None or code is None else FailedRank(report.rank, code)


def _last_error(tail: str) -> str | None:
    """A script or command that does not exist, as Python or a shell says; else the last line, if it is an error
    message."""
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
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
            tail = file.read(LOG_TAIL_BYTES)
    except OSError:
        return ""
    return ANSI.sub("", tail.replace(b"\r", b"\n").decode("utf-8", "replace")).strip()


def logged_kill(path: Path) -> bool:
    """Whether the end of the log says that a process of the training was killed: a loader worker, a rank."""
    return _KILLED.search(read_log_tail(path)) is not None


def _find_kill(descriptor: int, pid: int) -> str | None:
    # /dev/kmsg gives one record a read, `priority,sequence,time,flags;text`, from the oldest that the kernel still has;
    # without O_NONBLOCK the last read would wait for the next record.
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


LOST_PEER = re.compile(r"connection|broken pipe|peer|remote|socket|nccl|gloo|rendezvous|timed out", re.IGNORECASE)
"""In an exception that a rank raises because another one is gone."""


TAKEN = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
PORT = re.compile(r"port:? `?(\d{2,5})\b|\[?[\w.:]*\]?:(\d{4,5})\b")
MAX_COMMAND_CHARS = 120


def taken_port_evidence(log_tail: str) -> tuple[str, ...]:
    """What a log that says that a port is taken does not: the process that holds it, and a port that is free."""
    port = next((found for line in log_tail.splitlines() if TAKEN.search(line) and (found := _port(line))), None)
    if port is None:
        return ()
    holder = next(_holders(port), None)
    held = f"port {port} is used by {holder}" if holder else f"no visible process uses port {port} now"
    free = _free_port()
    return (held, *(() if free is None else (f"port {free} is free",)))


def _port(line: str) -> int | None:
    found = PORT.search(line)
    return None if found is None else int(found[1] or found[2])


def _holders(port: int) -> Iterator[str]:
    """The processes that listen on `port`: pid, command and, if it belongs to one, the run."""
    for pid in listening_pids(port):
        words = " ".join(" ".join(redact_argv(read_command(pid))).split())
        run = named_run(pid)
        yield f"process {pid}{f' of run {Path(run).name}' if run else ''} ({words[:MAX_COMMAND_CHARS]})"


def _free_port() -> int | None:
    try:
        with socket.socket() as probe:
            probe.bind(("", 0))
            return int(probe.getsockname()[1])
    except OSError:
        return None


SHELL_SIGKILL_CODE = 128 + signal.SIGKILL
"""Exit code of a shell whose command was killed."""


class ExitExaminer:
    """Examines how a process ended. Compares the kill counter of the cgroup with its value at the start."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._kills_before = cgroup_oom_kills()

    def examine(self, pid: int, ended: ExitStatus, now: float) -> Exited:
        """The `Exited` event of process `pid`, with evidence of an OOM kill."""
        kills = cgroup_oom_kills()
        counted = kills is not None and self._kills_before is not None and kills > self._kills_before
        line = kernel_log_oom_kill(pid) if ended.signal == signal.SIGKILL else None
        evidence = (["the cgroup counted an out-of-memory kill"] if counted else []) + ([line] if line else [])
        if ended.exit_code:
            evidence += taken_port_evidence(read_log_tail(self._log))
        killed = line is not None or (counted and self._was_killed(ended))
        return Exited(
            t=now,
            exit_code=ended.exit_code,
            signal=ended.signal,
            oom_kill=killed if kills is not None or line is not None else None,
            evidence=tuple(evidence),
        )

    def _was_killed(self, ended: ExitStatus) -> bool:
        """Whether the training or a process it needs was killed, by its exit status, that of a shell, or its log."""
        if ended.signal == signal.SIGKILL or ended.exit_code == SHELL_SIGKILL_CODE:
            return True
        return ended.exit_code != 0 and logged_kill(self._log)
