"""Looks into a training that makes no steps: asks its processes where they are, and reports what they wait for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from msgspec import Struct

from tuner_tui.core.clock import ClockReading
from tuner_tui.core.procfs import ProcessStat, all_processes
from tuner_tui.core.units import format_short_duration
from tuner_tui.inspection.ask import ask_processes
from tuner_tui.inspection.hang import Hang, explain_hang
from tuner_tui.inspection.process_dump import ProcessDump
from tuner_tui.runs.events.progress import FIRST_STEP_STALL_S, stall_after_s
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Hung

EARLY_S = 20.0
"""Seconds without a step after which a look is worth its time where the usual time of a step does not count: in the
first steps, in an evaluation and in a save."""
CONFIRM_S = 5.0
"""Between two looks that must agree: what moves in between does not hang."""
AGAIN_S = 30.0
PATIENCE_S = 120.0
"""Seconds without a step before work that may go on, such as one rank that evaluates alone, is reported."""
MAX_EVIDENCE = 12


class Inspection(Struct, frozen=True):
    """What the processes of a run answered, and why it does not move. `elsewhere`: the ranks on other machines."""

    processes: tuple[ProcessDump, ...]
    hang: Hang
    elsewhere: tuple[int, ...] = ()


def inspect_run(processes: Iterable[ProcessStat], state: RunState, host: str, now_s: float) -> Inspection:
    """Ask `processes`, those of the run on this machine, called `host`. Takes two seconds at most."""
    here = [rank for rank in state.ranks.values() if rank.host in (None, host)]
    of_run = {process.pid: process for process in processes}
    # Loader workers that died are no longer running, but their parent may wait for them.
    ended = {process.pid: process for process in all_processes() if not process.is_running and process.parent in of_run}
    dumps = ask_processes((of_run | ended).values(), {rank.pid: rank.rank for rank in here if rank.pid is not None})
    dead = [rank.rank for rank in here if rank.pid is not None and rank.pid not in of_run and not rank.ended]
    lengths = {
        rank.rank: rank.latest.epoch_batches
        for rank in state.ranks.values()
        if rank.latest is not None and rank.latest.epoch_batches is not None and not rank.independent
    }
    hang = explain_hang(dumps, now_s, lengths, dead)
    return Inspection(dumps, hang, tuple(sorted(rank.rank for rank in state.ranks.values() if rank not in here)))


class StallWatch:
    """Decides when a run is looked into, and what is reported: what two looks agree on, once until it moves again."""

    def __init__(self, look: Callable[[RunState], Hang]) -> None:
        self._look = look
        self._next_s: float | None = None
        self._suspected: Hang | None = None
        self._reported_step_t: float | None = None

    def check(self, state: RunState, now: ClockReading) -> Hung | None:
        """The event to record, None if there is nothing to report. Call about once a second."""
        moved_t = max(state.last_step_t or 0.0, state.phase_since_t or 0.0, state.launched_t or 0.0)
        if state.exited is not None or state.stop_requested is not None or not moved_t:
            return None
        quiet_s = now.wall_s - moved_t
        limit_s = stall_after_s(state) if state.phase == "training" else math.inf
        if quiet_s <= (EARLY_S if limit_s in (FIRST_STEP_STALL_S, math.inf) else limit_s):
            self._next_s = self._suspected = self._reported_step_t = None
            return None
        if self._reported_step_t == moved_t or (self._next_s is not None and now.monotonic_s < self._next_s):
            return None
        hang, before = self._look(state), self._suspected
        self._suspected = hang
        agree = before is not None and (before.kind, before.marks) == (hang.kind, hang.marks)
        self._next_s = now.monotonic_s + (AGAIN_S if before is not None else CONFIRM_S)
        if not agree or not (hang.is_certain or quiet_s > limit_s) or (hang.may_go_on and quiet_s < PATIENCE_S):
            return None
        self._reported_step_t = moved_t
        evidence = (f"no step for {format_short_duration(quiet_s)}", *hang.evidence)
        return Hung(t=now.wall_s, cause=hang.kind, sentence=hang.sentence, evidence=evidence[:MAX_EVIDENCE])
