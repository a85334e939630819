"""The outcome of a run, in one word and one sentence, from its events, the exit of its process and its log."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from tuner_tui.runs.events.run_state import RunState, fatal_event, is_memory_error
from tuner_tui.runs.events.types import Exited, OutOfMemory
from tuner_tui.runs.supervise.exit_evidence import FailedRank, LogEvidence

NO_EVIDENCE = LogEvidence()
LOST_PEER = re.compile(r"connection|broken pipe|peer|remote|socket|nccl|gloo", re.IGNORECASE)
"""In an exception that a rank raises because another one is gone."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """`outcome` is completed, stopped, failed, out-of-memory or lost."""

    outcome: str
    sentence: str


def determine_outcome(state: RunState, exited: Exited, log: LogEvidence = NO_EVIDENCE) -> RunOutcome:
    """The outcome, from the events of the run, the exit of its process, and its log.

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
    return RunOutcome("failed", _failure_sentence(state, exited, log.failed_rank, log.error))


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
    return f"Rank {rank}" if rank is not None and len(state.ranks) > 1 else "The training"


def signal_name(number: int) -> str:
    """The name of the signal, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _exception(state: RunState) -> str:
    assert state.raised is not None
    return f"{state.raised.type.rsplit('.', 1)[-1]}: {_first_line(state.raised.message)}".rstrip(". :")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:200]


def _at_step(state: RunState) -> str:
    if state.step is None:
        return ""
    return f" at step {state.step:,}" + (
        f" of {state.total_steps:,}" if state.total_steps and not state.total_guessed else ""
    )
