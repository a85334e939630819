"""The outcome of a run, and the evidence for it: events, exit, log, kernel, cgroup, the holder of a port.

The observer writes counters once a second, and the number of optimizer calls to a file of its own at every step.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner_tui.core.files import open_regular, read_regular
from tuner_tui.core.procfs import PROC, read_command, read_text
from tuner_tui.core.redaction import redact_argv
from tuner_tui.core.units import format_duration
from tuner_tui.hardware.host.system_info import Cgroups, listening_pids
from tuner_tui.runs.events.run_state import RankState, RunState, fatal_event, is_memory_error
from tuner_tui.runs.events.types import Exited, OutOfMemory
from tuner_tui.runs.log_parsing.failures import LauncherReport, parse_launcher_report
from tuner_tui.runs.log_parsing.lines import LogLine, parse_lines, read_head_and_tail
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.supervise.orphans import named_run

LOG_TAIL_BYTES = 16_384
OUT_OF_MEMORY_CAUSES = frozenset({"gpu-oom", "host-oom"})
"""Causes that count as out of memory. A full /dev/shm does not: a smaller batch would not help."""
_ERROR_LINE = re.compile(r"(?:[\w./-]+: )?(?:fatal )?error: (?=\S)", re.IGNORECASE)
_MISSING_SCRIPT = re.compile(
    r"^\S*?(python[\d.]*: (?:can't open file .+|No module named .+)"
    r"|(?:ba|da|z|k)?sh: .+: (?:No such file or directory|(?:command )?not found))$",
    re.MULTILINE,
)
_FAILED_NODE = re.compile(r"^(?:\d+: )?srun: error: Node failure on (\S+)", re.MULTILINE)
_ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_KILLED = re.compile(rb"killed by signal: Killed|exitcode *: *-9\b|Signal 9 \(SIGKILL\)|died with <Signals\.SIGKILL")


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


@dataclass(frozen=True, slots=True)
class SilentNode:
    """A node of which nothing was heard in the last seconds of the run."""

    host: str
    seconds: float


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


SILENT_S = 60.0
"""A file system over the network may take half a minute to show what another machine wrote."""


def silent_node(state: RunState, folder: RunFolder, here: str) -> SilentNode | None:
    """The node that was silent for longest, while the supervisor's, `here`, or another went on.

    It is asked when the training has failed. A node that is sampled is silent without samples; any other if its ranks
    wrote no event, though one elsewhere lived to see that it had lost a peer. The times are those of the files: clocks
    of nodes differ.
    """
    sampled = {host: _modified_t(folder.node_samples(host)) for host in folder.nodes() if host != here}
    ranks = {host: max(map(_modified_t, _files_of(host, state, folder)), default=0.0) for host in state.hosts}
    lost_peer = state.raised is not None and LOST_PEER.search(state.raised.message) is not None
    newest = max(ranks.values(), default=0.0) if lost_peer else 0.0
    silent = {host: newest - t for host, t in ranks.items() if t and host != here and host not in sampled}
    silent |= {host: _modified_t(folder.samples) - t for host, t in sampled.items() if t}
    host, seconds = max(silent.items(), key=lambda item: item[1], default=("", 0.0))
    return SilentNode(host, seconds) if seconds >= SILENT_S else None


def _files_of(host: str, state: RunState, folder: RunFolder) -> list[Path]:
    """The event files of the ranks on `host`: each of several ranks has its own."""
    return [folder.path / f"events-rank{rank.rank}.jsonl" for rank in state.ranks.values() if rank.host == host]


def _modified_t(path: Path) -> float:
    """When the file was last written; 0 if it cannot be read. Opened for that: over NFS the time may be an old one."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return 0.0


NO_EVIDENCE = LogEvidence()
LOST_PEER = re.compile(r"connection|broken pipe|peer|remote|socket|nccl|gloo|rendezvous|timed out", re.IGNORECASE)
"""In an exception that a rank raises because another one is gone."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """`outcome` is completed, stopped, failed, out-of-memory or lost."""

    outcome: str
    sentence: str


def determine_outcome(
    state: RunState, exited: Exited, log: LogEvidence = NO_EVIDENCE, silent: SilentNode | None = None
) -> RunOutcome:
    """The outcome, from the events of the run, the exit of its process, its log, and a node that fell silent.

    An out-of-memory error from which the training recovered does not count: the process must fail after it.
    """
    if exited.exit_code is None and exited.signal is None:
        return _unwatched_outcome(state, log)
    if exited.exit_code == 0:
        return _clean_exit_outcome(state)
    memory = _memory_sentence(state, exited, log.out_of_memory)
    if memory is not None and not _killed_on_request(state, exited):
        return RunOutcome("out-of-memory", memory)
    if state.stop_requested is not None:
        return RunOutcome("stopped", f"Stopped on request{_at_step(state)}.")
    failure = _failure_sentence(state, exited, log.failed_rank, log.error)
    if log.failed_node is not None:
        return RunOutcome("failed", f"Node {log.failed_node} was lost{_at_step(state)}: Slurm reports its failure.")
    if silent is not None:
        since = f"nothing came from it in the last {format_duration(silent.seconds)}"
        return RunOutcome("failed", f"Node {silent.host} was lost: {since}. {failure}")
    return RunOutcome("failed", failure)


SLURM_ENDS = {
    "": ("stopped", "Cancelled in Slurm"),
    "TIME LIMIT": ("killed", "Ended by Slurm at the time limit"),
    "PREEMPTION": ("killed", "Preempted by another job of Slurm"),
    "NODE FAILURE": ("killed", "Ended by Slurm because {node} failed"),
    "JOB REQUEUE": ("killed", "Requeued in Slurm"),
}
"""Outcome and words for what Slurm writes into the output of a job that it ends, after DUE TO."""
_SLURM_END = re.compile(r"\*\*\* JOB \d+ ON \S+ CANCELLED AT (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?: DUE TO ([A-Z ]+))?")


def slurm_end(state: RunState, job_log: Path, since_t: float, failed_node: str | None = None) -> RunOutcome | None:
    """How Slurm ended the job of a run that started at `since_t`, by the output of its script; None if it did not."""
    found = [one.groups("") for one in _SLURM_END.finditer(read_log_tail(job_log))]
    if not found:
        return None
    when, reason = found[-1]
    if time.mktime(time.strptime(when, "%Y-%m-%dT%H:%M:%S")) < int(since_t):  # of an earlier start of the job
        return None
    known = next((key for key in SLURM_ENDS if key and reason.startswith(key)), "")
    outcome, words = SLURM_ENDS[known]
    node = "a node" if failed_node is None else f"node {failed_node}"
    return RunOutcome(outcome, f"{words.format(node=node)}{_at_step(state)}.")


def _unwatched_outcome(state: RunState, log: LogEvidence) -> RunOutcome:
    """The training ended without a supervisor; only its own events are known."""
    if state.raised is not None and isinstance(fatal_event(state), OutOfMemory):
        return RunOutcome("out-of-memory", _out_of_memory(state))
    if state.raised is not None:
        return RunOutcome(
            "failed", f"{_rank_name(state, state.raised.rank)} failed{_at_step(state)}: {_exception(state)}."
        )
    if log.out_of_memory is not None:
        return RunOutcome("out-of-memory", f"Out of memory{_at_step(state)}: {log.out_of_memory}")
    code = next((rank.exit_code for rank in state.ranks.values() if rank.exit_code), None)
    if code is not None:
        return RunOutcome("failed", _exit_code_sentence(state, "The training", code, log.error))
    if state.ranks and all(rank.ended for rank in state.ranks.values()):
        return _clean_exit_outcome(state)
    if state.stop_requested is not None:
        return RunOutcome("stopped", f"Stopped on request{_at_step(state)}.")
    return RunOutcome("lost", f"The training ended{_at_step(state)} without a supervisor; how is unknown.")


def _clean_exit_outcome(state: RunState) -> RunOutcome:
    unfinished = state.total_steps is None or state.step is None or state.step < state.total_steps
    if state.stop_requested is not None and unfinished:
        return RunOutcome("stopped", f"Stopped on request{_at_step(state)}.")
    seen = "; no optimizer step was observed" if state.ended_without_step else ""
    return RunOutcome("completed", f"Completed{_at_step(state)}{seen}.")


def _memory_sentence(state: RunState, exited: Exited, memory_line: str | None) -> str | None:
    if exited.oom_kill:
        return f"The kernel killed the training{_at_step(state)}: the machine or its cgroup ran out of memory."
    event = fatal_event(state)
    if isinstance(event, OutOfMemory):
        return _out_of_memory(state)
    if event is not None:
        return f"Out of memory{_at_step(state)}: {_exception(state)}." if is_memory_error(event.type) else None
    return f"Out of memory{_at_step(state)}: {memory_line}" if memory_line is not None else None


def _out_of_memory(state: RunState) -> str:
    event = state.out_of_memory
    assert event is not None
    where = f" while {event.where}" if event.where else ""
    whose = f" on rank {event.rank}" if len(state.ranks) > 1 and event.rank is not None else ""
    return f"Out of memory{whose}{where}{_at_step(state)}: {_first_line(event.message)}"


def _killed_on_request(state: RunState, exited: Exited) -> bool:
    requested = state.stop_requested in ("terminate", "kill", "stop")
    return requested and exited.signal in (signal.SIGTERM, signal.SIGKILL) and not exited.oom_kill


def _failure_sentence(state: RunState, exited: Exited, failed: FailedRank | None, error: str | None) -> str:
    raised = state.raised
    if failed is not None and failed.exit_code < 0 and not _raised_first(state, failed):
        name = signal_name(-failed.exit_code)
        return f"Rank {failed.rank} was ended{_at_step(state)} by {name}; the other ranks could not continue."
    if raised is not None:
        return f"{_rank_name(state, raised.rank)} failed{_at_step(state)}: {_exception(state)}."
    if failed is not None:
        return _exit_code_sentence(state, f"Rank {failed.rank}", failed.exit_code, error)
    if exited.signal is not None:
        why = "; ".join(exited.evidence) or "the sender is unknown"
        return f"The training was ended{_at_step(state)} by {signal_name(exited.signal)}: {why}."
    evidence = next(iter(exited.evidence), None)
    return _exit_code_sentence(state, "The training", exited.exit_code, error or evidence)


def _exit_code_sentence(state: RunState, who: str, code: int | None, error: str | None) -> str:
    ended = f"{who} ended{_at_step(state)} with exit code {code}"
    return f"{ended}: {error}." if error else f"{ended}; see the end of its output."


def _raised_first(state: RunState, failed: FailedRank) -> bool:
    """Whether the first exception is the cause, not the exit that the launcher saw.

    A rank that lost its peers raises in turn, and native code may abort it as it ends.
    """
    raised = state.raised
    if raised is None or raised.rank == failed.rank:
        return raised is not None
    return failed.exit_code == -signal.SIGABRT and LOST_PEER.search(raised.message) is None


def _rank_name(state: RunState, rank: int | None) -> str:
    if rank is None or len(state.ranks) < 2:
        return "The training"
    known = state.ranks.get(rank)
    return f"Rank {rank}" + (f" on {known.host}" if known is not None and known.host and len(state.hosts) > 1 else "")


def signal_name(number: int) -> str:
    """The name of the signal, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _exception(state: RunState) -> str:
    assert state.raised is not None
    return f"{state.raised.type.rpartition('.')[2]}: {_first_line(state.raised.message)}".rstrip(". :")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:200]


def _at_step(state: RunState) -> str:
    if state.step is None:
        return ""
    return f" at step {state.step:,}" + (
        f" of {state.total_steps:,}" if state.total_steps and not state.total_guessed else ""
    )


MAX_BYTES = 64


def with_unwritten_steps(state: RunState, folder: RunFolder) -> RunState:
    """`state` at the last step of each rank: to be asked when the training has ended."""
    steps = [unwritten_steps(rank, folder) for rank in state.ranks.values()]
    more = max(steps, default=0)
    return state if not more or state.step is None else replace(state, step=state.step + more)


def unwritten_steps(rank: RankState, folder: RunFolder) -> int:
    """Steps of a rank after its newest counters; 0 where nothing is known. Several optimizers may make one step."""
    latest = rank.latest
    if rank.pid is None or latest is None or not latest.optimizer_calls or not latest.own_steps:
        return 0
    try:
        calls = int(read_regular(folder.optimizer_calls(rank.host, rank.pid), MAX_BYTES))
    except (OSError, ValueError):
        return 0
    return max(0, (calls - latest.optimizer_calls) * latest.own_steps // latest.optimizer_calls)


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
