"""Follows one training to its end: its events, stop orders, its exit, and the processes it leaves behind."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

from tuner_tui.core.clock import ClockReading
from tuner_tui.core.line_files import LineTail
from tuner_tui.core.procfs import ProcessStat, is_alive
from tuner_tui.hardware.processes.process_roles import LOADER_WORKER
from tuner_tui.runs.events.fold import fold
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Event, Exited, Finished, StopRequested
from tuner_tui.runs.store.codec import decode_event
from tuner_tui.runs.store.control import Order, read_order
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.supervise.exit_evidence import (
    cgroup_oom_kills,
    kernel_log_oom_kill,
    logged_error,
    logged_failed_rank,
    logged_kill,
    logged_out_of_memory,
)
from tuner_tui.runs.supervise.orphans import Orphans, find_orphans
from tuner_tui.runs.supervise.outcome import determine_outcome
from tuner_tui.runs.supervise.run_writer import RunWriter
from tuner_tui.runs.supervise.stop_escalation import EscalationInput, StopEscalation, StopTimeouts
from tuner_tui.runs.supervise.training_process import ExitStatus, SupervisedTraining

SHELL_SIGKILL_CODE = 128 + signal.SIGKILL
"""The exit code of a shell whose command was killed."""


class ExitExaminer:
    """Remembers what the cgroup had counted before, so that the difference is the training's."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._kills_before = cgroup_oom_kills()

    def examine(self, pid: int, ended: ExitStatus, now: float) -> Exited:
        """The event of the end of process `pid`, with the evidence there is."""
        kills = cgroup_oom_kills()
        counted = kills is not None and self._kills_before is not None and kills > self._kills_before
        line = kernel_log_oom_kill(pid) if ended.signal == signal.SIGKILL else None
        evidence = (["the cgroup counted a kill for memory"] if counted else []) + ([line] if line else [])
        killed = line is not None or (counted and self._was_killed(ended))
        return Exited(
            t=now,
            exit_code=ended.exit_code,
            signal=ended.signal,
            oom_kill=killed if kills is not None or line is not None else None,
            evidence=tuple(evidence),
        )

    def _was_killed(self, ended: ExitStatus) -> bool:
        """Whether the training, or a process it needs, was killed: told by its exit, a shell's, or its own words."""
        if ended.signal == signal.SIGKILL or ended.exit_code == SHELL_SIGKILL_CODE:
            return True
        return ended.exit_code != 0 and logged_kill(self._log)


class TrainingMonitor:
    """One training under supervision. `done` is called at least once a second and after every wake-up."""

    def __init__(
        self, folder: RunFolder, training: SupervisedTraining, journal: RunWriter, patience: StopTimeouts
    ) -> None:
        self._folder = folder
        self._training = training
        self._journal = journal
        self._patience = patience
        self._ladder = StopEscalation(patience)
        self._post_mortem = ExitExaminer(folder.output_log)
        self._order_seen: int | None = None
        self._tails: dict[str, LineTail] = {}
        self._state = RunState()
        self._exit: ExitStatus | None = None
        self._ended = ClockReading(0.0, 0.0)
        self._asked_leftovers_s: float | None = None
        self._saving: tuple[float | None, float] | None = None

    def pids(self) -> list[int]:
        """The processes to take samples of, with everything below them."""
        return [self._training.process.pid] if self._exit is None else sorted(self._observed())

    def terminate(self, now: ClockReading) -> None:
        """The supervisor itself was asked to end: so is the training, and it is supervised until it has."""
        self._ordered("terminate", now)

    def done(self, now: ClockReading) -> bool:
        """Look at everything once; True when the run is over and written down."""
        if self._journal.in_place:
            self._follow()
            self._take_orders(now)
        self._press(now)
        ended = self._training.collect()
        if self._exit is None:
            if ended is None:
                return False
            self._exit, self._ended = ended, now
        leftovers = find_orphans(self._training.group, self._observed())
        if self._goes_on(leftovers):
            return False
        if self._state.exited is None:
            self._record(self._post_mortem.examine(self._training.process.pid, self._exit, self._ended.t))
        return not self._waits_for(leftovers, now) and self._finish(leftovers, now)

    def _follow(self) -> None:
        for path in self._folder.event_files():
            tail = self._tails.setdefault(path.name, LineTail(path))
            for line in tail.lines():
                event = decode_event(line)
                if event is not None:
                    self._state = fold(self._state, event)

    def _take_orders(self, now: ClockReading) -> None:
        found = read_order(self._folder.control)
        if found is None or found[1] == self._order_seen:
            return
        order, self._order_seen = found
        self._ordered(order, now)

    def _ordered(self, order: Order, now: ClockReading) -> None:
        if self._ladder.press(order, now.s) or order == "checkpoint":
            self._record(StopRequested(t=now.t, how=order))

    def _observed(self) -> set[int]:
        return {rank.pid for rank in self._state.ranks.values() if rank.pid is not None}

    def _press(self, now: ClockReading) -> None:
        state = self._state
        saving_since = self._saving_since(now) if self._exit is None else None
        evaluating = state.phase == "evaluating"
        seen = EscalationInput(now.s, state.takes_orders, saving_since, state.rates.step_time_s, evaluating)
        due = self._ladder.due(seen)
        if due is not None:
            self._signal(due)

    def _saving_since(self, now: ClockReading) -> float | None:
        """When the save that goes on was first seen; the training's own time of it is by a clock that may be set."""
        if self._state.phase != "saving":
            self._saving = None
        elif self._saving is None or self._saving[0] != self._state.phase_since_t:
            self._saving = (self._state.phase_since_t, now.s)
        return None if self._saving is None else self._saving[1]

    def _signal(self, number: signal.Signals) -> None:
        """To the training's processes.

        Nobody gets SIGTERM twice, which a trainer may take for impatience. What a launcher started in sessions of
        their own is the launcher's to terminate, but is killed with it. Loader workers are their trainer's to end: one
        that saves on SIGTERM needs their batches up to there.
        """
        group = self._training.group
        alive = self._exit is None and is_alive(self._training.process)
        if alive and number == signal.SIGKILL:
            _signal_group(group, number)
        for one in find_orphans(group, self._observed()).own:
            asked = one.session == group and one.comm != LOADER_WORKER
            if asked or not alive or number == signal.SIGKILL:
                _signal_process(one, number)

    def _goes_on(self, leftovers: Orphans) -> bool:
        """Whether the command has returned well, but left the training at work: a script that ends with `&`."""
        if not leftovers.own or self._exit != ExitStatus(exit_code=0) or self._ladder.order is not None:
            return False
        self._journal.problem(f"The command returned, but its training goes on: {leftovers.names()}.")
        return True

    def _waits_for(self, leftovers: Orphans, now: ClockReading) -> bool:
        """Whether to wait for what an ended training has left: first for it to notice, then for it to obey."""
        if not leftovers.own:
            return False
        if self._asked_leftovers_s is not None:
            return now.s - self._asked_leftovers_s < 2 * self._patience.leftover_s
        if now.s - self._ended.s >= self._patience.leftover_s:
            self._asked_leftovers_s = now.s
            for one in () if self._ladder.terminated else leftovers.own:
                _signal_process(one, signal.SIGTERM)
        return True

    def _finish(self, leftovers: Orphans, now: ClockReading) -> bool:
        if self._journal.in_place:
            self._follow()
        exited = self._state.exited or Exited(t=now.t)
        log = self._folder.output_log
        well = exited.exit_code == 0
        said = () if well else (logged_out_of_memory(log), logged_failed_rank(log), logged_error(log))
        judged = determine_outcome(self._state, exited, *said)
        names = leftovers.names()
        sentence = judged.sentence + (f" It left processes running: {names}." if names else "")
        step, total = self._state.step, self._state.total_steps
        self._record(Finished(t=now.t, outcome=judged.outcome, sentence=sentence, step=step, total_steps=total))
        self._journal.update(
            lambda known: replace(
                known,
                ended_t=exited.t,
                exit_code=exited.exit_code,
                signal=exited.signal,
                outcome=judged.outcome,
                sentence=sentence,
            )
        )
        return True

    def _record(self, event: Event) -> None:
        """Fold at once too: on a full disk the line is never read back. Folding it twice changes nothing."""
        self._journal.event(event)
        self._state = fold(self._state, event)


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def _signal_process(process: ProcessStat, number: signal.Signals) -> None:
    try:
        if is_alive(process):
            os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return
