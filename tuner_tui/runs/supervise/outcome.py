"""The outcome of a run: determined from its events and the evidence, and recorded where no supervisor did."""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tuner_tui.core.files import LockedError, acquire_lock, append_line
from tuner_tui.core.redaction import redact_text
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.run_state import RunState, fatal_event, is_memory_error
from tuner_tui.runs.events.types import Event, Exited, Finished, OutOfMemory
from tuner_tui.runs.slurm import LOG_FILE
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.supervisor_state import SupervisorState, read_supervisor_state, write_supervisor_state
from tuner_tui.runs.supervise.exit_evidence import (
    LOST_PEER,
    NO_EVIDENCE,
    FailedRank,
    LogEvidence,
    read_log_evidence,
    read_log_tail,
)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """`outcome` is completed, stopped, failed, out-of-memory or lost."""

    outcome: str
    sentence: str


def determine_outcome(state: RunState, exited: Exited, log: LogEvidence = NO_EVIDENCE) -> RunOutcome:
    """The outcome, from the events of the run, the exit of its process and its log.

    An out-of-memory error from which the training recovered does not count: the process must fail after it.
    """
    # From the strongest evidence to the weakest. Memory goes before a requested stop: the user who stopped a run that
    # had run out of memory needs to know. A stop goes before a failure, since trainings that are asked to stop may end
    # with any code. A lost node explains what the ranks of the others raise, so its sentence comes first.
    if exited.exit_code is None and exited.signal is None:
        return _unwatched_outcome(state, log)
    if exited.exit_code == 0:
        return _clean_exit_outcome(state)
    memory = _memory_sentence(state, exited, log.out_of_memory)
    if memory is not None and not _killed_on_request(state, exited):
        return RunOutcome("out-of-memory", memory)
    if state.stop_requested is not None:
        return RunOutcome("stopped", f"Stopped on request{_at_step(state)}.")
    if log.failed_node is not None:
        return RunOutcome("failed", f"Node {log.failed_node} was lost{_at_step(state)}: Slurm reports its failure.")
    return RunOutcome("failed", _failure_sentence(state, exited, log.failed_rank, log.error))


SLURM_ENDS = {
    "": ("stopped", "Cancelled in Slurm"),
    "TIME LIMIT": ("killed", "Ended by Slurm at the time limit"),
    "PREEMPTION": ("killed", "Preempted by another job of Slurm"),
    "NODE FAILURE": ("killed", "Ended by Slurm because {node} failed"),
    "JOB REQUEUE": ("killed", "Requeued in Slurm"),
}
"""Outcome and words for what Slurm writes into the output of a job that it ends, after DUE TO."""
_SLURM_END = re.compile(r"\*\*\* JOB \d+ ON \S+ CANCELLED AT \S+(?: DUE TO ([A-Z ]+))?")


def slurm_end(state: RunState, job_log: Path, failed_node: str | None = None) -> RunOutcome | None:
    """How Slurm ended the job of the run, by the output of its script; None if it did not."""
    found = _SLURM_END.search(read_log_tail(job_log))
    if found is None:
        return None
    reason = found[1] or ""
    outcome, words = SLURM_ENDS[next((key for key in SLURM_ENDS if key and reason.startswith(key)), "")]
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
    host = state.ranks[rank].host if rank in state.ranks and len(state.hosts) > 1 else None
    return f"Rank {rank}" + (f" on {host}" if host else "")


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


def finished_event(t: float, outcome: RunOutcome, state: RunState) -> Finished:
    """The last event of a run whose last state is `state`."""
    return Finished(
        t=t,
        outcome=outcome.outcome,
        sentence=outcome.sentence,
        step=state.step,
        total_steps=state.total_steps,
        loss=state.loss,
    )


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
    try:
        recorded = read_supervisor_state(folder.state)
        if recorded is not None and recorded.outcome is not None:
            return recorded
        ended = _state_at_end(folder, supervision, events)
        if ended is not None:
            _record(folder, ended, events)
        return ended
    finally:
        os.close(lock)


def record_end(folder: RunFolder, ended: SupervisorState) -> None:
    """Record the end of a run that no supervisor has recorded and of which its files say nothing."""
    try:
        lock = acquire_lock(folder.lock, 0.0, needed=False)
    except (LockedError, OSError):
        return
    try:
        recorded = read_supervisor_state(folder.state)
        if recorded is None or recorded.outcome is None:
            _record(folder, ended, [])
    finally:
        os.close(lock)


def _state_at_end(folder: RunFolder, supervision: SupervisorState, events: list[Event]) -> SupervisorState | None:
    state = fold_all(RunState(), events)
    finished = state.finished
    if finished is not None:
        return replace(supervision, ended_t=finished.t, outcome=finished.outcome, sentence=finished.sentence)
    last_t = state.last_event_t or time.time()
    judged = determine_outcome(state, state.exited or Exited(t=last_t), read_log_evidence(folder.output_log))
    if judged.outcome == "lost":
        judged = slurm_end(state, folder.path / LOG_FILE) or judged
    if judged.outcome == "lost":
        return None
    return replace(supervision, ended_t=last_t, outcome=judged.outcome, sentence=redact_text(judged.sentence))


def _record(folder: RunFolder, ended: SupervisorState, events: list[Event]) -> None:
    """Record the outcome. On a full disk or in a folder of another user it is found again by the next who looks."""
    assert ended.outcome is not None
    try:
        if not any(isinstance(event, Finished) for event in events):
            state = fold_all(RunState(), events)
            finished = finished_event(time.time(), RunOutcome(ended.outcome, ended.sentence), state)
            append_line(folder.events, encode_event(finished))
        write_supervisor_state(folder.state, ended)
    except OSError:
        return
