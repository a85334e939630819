"""How a run ended: the evidence of its exit, its outcome, and the record of it where no supervisor wrote one.

Evidence are the exit and the log of the training, the kernel log, the cgroup, and a taken port.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.file_locks import LockedError, acquire_lock, held_lock
from tuner_tui.core.files import closing_descriptor, read_data_file
from tuner_tui.core.line_files import append_line
from tuner_tui.core.procfs import PROC, read_command_line, read_proc_text
from tuner_tui.core.redaction import redact_argv, redact_text
from tuner_tui.core.text import first_line
from tuner_tui.hardware.system_info import Cgroups, listening_pids
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import SIGNALLED, Event, Exited, Finished, OutOfMemory
from tuner_tui.runs.log_parsing.failures import LauncherReport, signal_name
from tuner_tui.runs.log_parsing.fatal_failure import Judgement, judge
from tuner_tui.runs.log_parsing.lines import ANSI, LogLine, parse_lines, read_head_and_tail, read_tail
from tuner_tui.runs.log_parsing.rank_report import LOST_PEER, read_ranks
from tuner_tui.runs.slurm import LOG_FILE, TABLE, is_cancelled, read_job
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import RunFolder, SupervisorState, read_supervisor_state, write_supervisor_state
from tuner_tui.runs.supervise.run_processes import named_run
from tuner_tui.runs.supervise.training_process import ExitStatus

LOG_TAIL_BYTES = 16_384
"""Messages of launchers, loaders and shells about an exit are the last ones, and short."""
_ERROR_LINE = re.compile(r"(?:[\w./-]+: )?(?:fatal )?error: (?=\S)", re.IGNORECASE)
_MISSING_SCRIPT = re.compile(
    r"^\S*?(python[\d.]*: (?:can't open file .+|No module named .+)"
    r"|(?:ba|da|z|k)?sh: .+: (?:No such file or directory|(?:command )?not found))$",
    re.MULTILINE,
)
_FAILED_NODE = re.compile(r"^(?:\d+: )?srun: error: Node failure on (\S+)", re.MULTILINE)
_KILLED = re.compile(r"killed by signal: Killed|exitcode *: *-9\b|Signal 9 \(SIGKILL\)|died with <Signals\.SIGKILL")


class ExitLog(Struct, frozen=True):
    """What is read of the output of a training that ended badly: its beginning and end, the error message of its last
    line, and the node that failed by a message of srun."""

    lines: Sequence[LogLine] = ()
    error: str | None = None
    failed_node: str | None = None


NO_LOG = ExitLog()


def cgroup_oom_kills(proc: Path = PROC) -> int | None:
    """Processes in the cgroup of this process that the kernel has killed for memory so far; None if unknown.

    Read from `memory.events` (cgroup 2) or `memory.oom_control` (cgroup 1).
    """
    for folder in Cgroups.of_this_process(proc).memory:
        for name in ("memory.events", "memory.oom_control"):
            match = re.search(r"^oom_kill (\d+)$", read_proc_text(folder / name), re.MULTILINE)
            if match:
                return int(match[1])
    return None


def kernel_log_oom_kill(pid: int) -> str | None:
    """The line of the kernel log that says it killed `pid` for memory; None if there is none or it cannot be read."""
    # /dev/kmsg gives one record a read, `priority,sequence,time,flags;text`, from the oldest that the kernel still has;
    # with O_NONBLOCK its end is an error, without it the last read would wait for the next record.
    wanted, kill = re.compile(rf"[Kk]illed process {pid} \("), None
    with suppress(OSError), closing_descriptor(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)) as descriptor:
        while True:
            try:
                record = os.read(descriptor, 8192).decode("utf-8", "replace")
            except BrokenPipeError:  # the oldest record was overwritten; the next read continues after it
                continue
            if wanted.search(record):
                kill = record.partition(";")[2].splitlines()[0][:200]
    return kill


def read_exit_log(path: Path) -> ExitLog:
    """What the output of a failed training says; empty if it cannot be read."""
    try:
        lines = parse_lines(read_head_and_tail(path))
    except OSError:
        return NO_LOG
    tail = read_log_tail(path)
    node = _FAILED_NODE.search(tail)
    return ExitLog(lines, last_error(tail), None if node is None else _printable(node[1]))


def last_error(tail: str) -> str | None:
    """A script or command that does not exist, as Python or a shell says; else the last line, if it is an error
    message."""
    missing = _MISSING_SCRIPT.search(tail)
    if missing is not None:
        return _printable(missing[1])
    text = tail.rpartition("\n")[2].strip()
    match = _ERROR_LINE.match(text)
    return None if match is None else _printable(text[match.end() :])


def _printable(text: str) -> str:
    return "".join(filter(str.isprintable, text))[:300].rstrip(". ")


def read_log_tail(path: Path) -> str:
    """The end of the log without escape sequences; empty if it cannot be read."""
    try:
        lines = read_tail(path, LOG_TAIL_BYTES)
    except OSError:
        return ""
    return ANSI.sub("", "\n".join(lines).replace("\r", "\n")).strip()


def reports_kill(log_tail: str) -> bool:
    """Whether the end of a log says that a process of the training was killed: a loader worker, a rank."""
    return _KILLED.search(log_tail) is not None


TAKEN = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
PORT = re.compile(r"port:? `?(\d{2,5})\b|\[?[\w.:]*\]?:(\d{4,5})\b")
MAX_COMMAND_CHARS = 120


def taken_port_evidence(log_tail: str) -> tuple[str, ...]:
    """For a log with "port in use": the process that holds the port, and a port that is free."""
    matches = (PORT.search(line) for line in log_tail.splitlines() if TAKEN.search(line))
    port = next((int(match[1] or match[2]) for match in matches if match is not None), None)
    if port is None:
        return ()
    evidence = [f"no visible process uses port {port} now"]
    for pid in listening_pids(port)[:1]:
        words, run = " ".join(" ".join(redact_argv(read_command_line(pid))).split()), named_run(pid)
        holder = f"process {pid}{f' of run {Path(run).name}' if run else ''} ({words[:MAX_COMMAND_CHARS]})"
        evidence = [f"port {port} is used by {holder}"]
    with suppress(OSError), socket.socket() as probe:
        probe.bind(("", 0))
        evidence.append(f"port {probe.getsockname()[1]} is free")
    return tuple(evidence)


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
        by_signal = ended.signal == signal.SIGKILL or ended.exit_code == SHELL_SIGKILL_CODE
        is_reported = counted and not by_signal and ended.exit_code != 0 and reports_kill(read_log_tail(self._log))
        killed = line is not None or (counted and by_signal) or is_reported  # the training or a process that it needs
        return Exited(
            t=now,
            exit_code=ended.exit_code,
            signal=ended.signal,
            oom_kill=killed if kills is not None or line is not None else None,
            evidence=tuple(evidence),
        )


class RunOutcome(Struct, frozen=True):
    """`outcome` is completed, stopped, failed, out-of-memory or lost."""

    outcome: str
    sentence: str


def determine_outcome(state: RunState, exited: Exited, log: ExitLog = NO_LOG) -> RunOutcome:
    """The outcome, from the events of the run, the exit of its process and its log.

    An out-of-memory error from which the training recovered does not count: the process must fail after it.
    """
    # From the strongest evidence to the weakest. Memory goes before a requested stop: the user who stopped a run that
    # had run out of memory needs to know. A stop goes before a failure, since trainings that are asked to stop may end
    # with any code. A lost node explains what the ranks of the others raise, so its sentence comes first.
    if exited.exit_code == 0:
        return _clean_exit_outcome(state)
    judgement = judge(log.lines, state, exited)
    requested = state.stop_requested in ("terminate", "kill", "stop")
    killed = requested and exited.signal in (signal.SIGTERM, signal.SIGKILL) and not exited.oom_kill
    if judgement.out_of_memory and not killed:
        return RunOutcome("out-of-memory", _memory_sentence(state, judgement))
    if exited.exit_code is None and exited.signal is None:
        return _unwatched_outcome(state, log)
    if state.stop_requested is not None:
        return _stopped(state)
    if log.failed_node is not None:
        return RunOutcome("failed", f"Node {log.failed_node} was lost{_at_step(state)}: Slurm reports its failure.")
    return RunOutcome("failed", _failure_sentence(state, exited, judgement.launcher, log))


_SLURM_MEMORY = re.compile(r"\boom[_-]?kill|Out Of Memory|[Ee]xceeded (?:job |step )?memory limit")
_SLURM_END = re.compile(r"\*\*\* JOB \d+ ON \S+ CANCELLED AT \S+(?: DUE TO ([A-Z ]+))?")


def slurm_end(state: RunState, run: Path, failed_node: str | None = None) -> RunOutcome | None:
    """How Slurm ended the job of the run in the folder `run`, by the output of its script; None if it did not."""
    tail = read_log_tail(run / LOG_FILE)
    if _SLURM_MEMORY.search(tail):
        return RunOutcome("out-of-memory", f"The job used more memory than Slurm allows it{_at_step(state)}.")
    if is_cancelled(run):
        return None
    match, job = next(reversed(list(_SLURM_END.finditer(tail))), None), read_job(run)
    if match is None:
        announced = job is not None and job.limit_t is not None and state.stop_requested is not None
        sentence = f"Stopped{_at_step(state)} at the time limit of its Slurm job."
        return RunOutcome("time-limit", sentence) if announced else None
    reason = match[1] or ""
    ends = read_data_file(TABLE)["log_ends"]
    outcome, words = ends[next((key for key in ends if key and reason.startswith(key)), "")]
    node = "a node" if failed_node is None else f"node {failed_node}"
    return RunOutcome(outcome, f"{words.format(node=node)}{_at_step(state)}.")


def _unwatched_outcome(state: RunState, log: ExitLog) -> RunOutcome:
    """The training ended without a supervisor; only its own events are known."""
    if state.raised is not None:
        who = _rank_name(state, state.raised.rank)
        return RunOutcome("failed", f"{who} failed{_at_step(state)}: {_exception(state)}.")
    code = next((rank.exit_code for rank in state.ranks.values() if rank.exit_code), None)
    if code is not None:
        return RunOutcome("failed", _exit_code_sentence(state, "The training", code, log.error))
    if state.ranks and all(rank.ended for rank in state.ranks.values()):
        return _clean_exit_outcome(state)
    if state.stop_requested is not None:
        return _stopped(state)
    return RunOutcome("lost", f"The training ended{_at_step(state)} without a supervisor; how is unknown.")


def _clean_exit_outcome(state: RunState) -> RunOutcome:
    unfinished = state.total_steps is None or state.step is None or state.step < state.total_steps
    if state.stop_requested is not None and unfinished:
        return _stopped(state)
    seen = "; no optimizer step was observed" if state.ended_without_step else ""
    return RunOutcome("completed", f"Completed{_at_step(state)}{seen}.")


def _stopped(state: RunState) -> RunOutcome:
    by = "by a SIGTERM from another program" if state.stop_requested == SIGNALLED else "on request"
    return RunOutcome("stopped", f"Stopped {by}{_at_step(state)}.")


def _memory_sentence(state: RunState, judgement: Judgement) -> str:
    if judgement.by == "kernel":
        return f"The kernel killed the training{_at_step(state)}: the machine or its cgroup ran out of memory."
    event = judgement.event
    if isinstance(event, OutOfMemory):
        where = " in the optimizer step" if event.where == "optimizer-step" else f" while {event.where}"
        where = where if event.where else ""
        whose = f" on rank {event.rank}" if len(state.ranks) > 1 and event.rank is not None else ""
        return f"Out of memory{whose}{where}{_at_step(state)}: {first_line(event.message)}"
    if judgement.by == "log" and judgement.match is not None:
        return f"Out of memory{_at_step(state)}: {first_line(judgement.match.failure.headline)}"
    return f"Out of memory{_at_step(state)}: {_exception(state)}."


def _failure_sentence(state: RunState, exited: Exited, launcher: LauncherReport, log: ExitLog) -> str:
    raised, rank, error = state.raised, launcher.rank, log.error
    # What is not on record may have failed before: the ranks of another host, of which there is neither event nor line.
    unseen = "" if read_ranks(log.lines, state).all_seen else "; which rank failed first is unknown"
    if rank is not None and launcher.signal is not None and not _raised_first(state, rank, launcher.signal):
        name = signal_name(launcher.signal)
        then = unseen or "; the other ranks could not continue"
        return f"Rank {rank} was ended{_at_step(state)} by {name}{then}."
    if raised is not None:
        lost = unseen if len(state.ranks) > 1 and LOST_PEER.search(raised.message) else ""
        return f"{_rank_name(state, raised.rank)} failed{_at_step(state)}: {_exception(state)}{lost}."
    if rank is not None and launcher.exit_code is not None:
        who = "The training" if unseen else f"Rank {rank}"
        return _exit_code_sentence(state, who, launcher.exit_code, error)
    if exited.signal is not None:
        why = "; ".join(exited.evidence) or "the sender is unknown"
        return f"The training was ended{_at_step(state)} by {signal_name(exited.signal)}: {why}."
    evidence = next(iter(exited.evidence), None)
    return _exit_code_sentence(state, "The training", exited.exit_code, error or evidence)


def _exit_code_sentence(state: RunState, who: str, code: int | None, error: str | None) -> str:
    ended = f"{who} ended{_at_step(state)} with exit code {code}"
    return f"{ended}: {error}." if error else f"{ended}; see the end of its output."


def _raised_first(state: RunState, failed_rank: int, number: int) -> bool:
    """Whether the first exception is the cause, not the exit that the launcher saw.

    A rank that lost its peers raises in turn, and native code may abort it as it ends.
    """
    raised = state.raised
    if raised is None or raised.rank == failed_rank:
        return raised is not None
    return number == signal.SIGABRT and LOST_PEER.search(raised.message) is None


def _rank_name(state: RunState, rank: int | None) -> str:
    if rank is None or len(state.ranks) < 2:
        return "The training"
    host = state.ranks[rank].host if rank in state.ranks and len(state.hosts) > 1 else None
    return f"Rank {rank}" + (f" on {host}" if host else "")


def _exception(state: RunState) -> str:
    assert state.raised is not None
    return f"{state.raised.type.rpartition('.')[2]}: {first_line(state.raised.message)}".rstrip(". :")


def _at_step(state: RunState) -> str:
    if state.step is None:
        return ""
    return f" at step {state.step:,}" + (
        f" of {state.total_steps:,}" if state.total_steps and not state.total_guessed else ""
    )


def finished_event(t: float, outcome: RunOutcome, state: RunState) -> Finished:
    """The last event of a run whose last state is `state`."""
    total = state.step if state.total_guessed and outcome.outcome == "completed" else state.total_steps
    return Finished(
        t=t, outcome=outcome.outcome, sentence=outcome.sentence, step=state.step, total_steps=total, loss=state.loss,
        not_finite_since=state.not_finite_since,
    )  # fmt: skip


def settle(folder: RunFolder, supervision: SupervisorState, events: list[Event]) -> SupervisorState | None:
    """The state with the outcome of a run whose processes are all gone; None if it cannot be known.

    The outcome is written to the folder if that is possible, as its supervisor would have done.
    """
    # Several programs may look at once, and a supervisor may be about to adopt the run: who has the lock writes, and
    # reads the state again first, since another may have written it since.
    try:
        lock = acquire_lock(folder.lock, 0.0)
    except LockedError:
        return None  # a supervisor is there after all, or somebody else looks
    except OSError:
        return _state_at_end(folder, supervision, events)
    with closing_descriptor(lock):
        recorded = read_supervisor_state(folder.state)
        if recorded is not None and recorded.outcome is not None:
            return recorded
        ended = _state_at_end(folder, supervision, events)
        if ended is not None:
            _record(folder, ended, events)
        return ended


def record_end(folder: RunFolder, ended: SupervisorState, earlier: str | None = None) -> None:
    """Record the end of a run of which its files say nothing, or only the outcome `earlier`."""
    with suppress(LockedError, OSError), held_lock(folder.lock, 0.0, needed=False):
        recorded = read_supervisor_state(folder.state)
        if recorded is None or recorded.outcome in (None, earlier):
            _record(folder, ended, [])


def _state_at_end(folder: RunFolder, supervision: SupervisorState, events: list[Event]) -> SupervisorState | None:
    state = fold_all(RunState(), events)
    finished = state.finished
    if finished is not None:
        return replace(supervision, ended_t=finished.t, outcome=finished.outcome, sentence=finished.sentence)
    last_t = state.last_event_t or time.time()
    judged = determine_outcome(state, state.exited or Exited(t=last_t), read_exit_log(folder.output_log))
    if judged.outcome == "lost":
        judged = slurm_end(state, folder.path) or judged
    if judged.outcome == "lost":
        return None
    return replace(supervision, ended_t=last_t, outcome=judged.outcome, sentence=redact_text(judged.sentence))


def _record(folder: RunFolder, ended: SupervisorState, events: list[Event]) -> None:
    """Record the outcome. On a full disk or in a folder of another user it is found again by the next who looks."""
    assert ended.outcome is not None
    with suppress(OSError):
        if not any(isinstance(event, Finished) for event in events):
            state = fold_all(RunState(), events)
            finished = finished_event(time.time(), RunOutcome(ended.outcome, ended.sentence), state)
            append_line(folder.events, encode_event(finished))
        write_supervisor_state(folder.state, ended)
