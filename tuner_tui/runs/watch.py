"""Watching one training to its end: its events, the orders given to it, its exit, and what it leaves behind."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

from tuner_tui.runs.codec import decode
from tuner_tui.runs.control import Order, read_order
from tuner_tui.runs.events import Event, Exited, Finished, StopRequested
from tuner_tui.runs.evidence import log_names_dead_rank, log_says_out_of_memory, log_says_why
from tuner_tui.runs.fold import fold
from tuner_tui.runs.folder import RunFolder
from tuner_tui.runs.journal import Journal
from tuner_tui.runs.ladder import Patience, Situation, StopLadder
from tuner_tui.runs.leftovers import Leftovers, find_leftovers
from tuner_tui.runs.moment import Moment
from tuner_tui.runs.post_mortem import PostMortem
from tuner_tui.runs.processes import Stat, is_alive, is_loader_worker
from tuner_tui.runs.state import RunState
from tuner_tui.runs.tail import Tail
from tuner_tui.runs.training import ExitStatus, Training
from tuner_tui.runs.verdict import verdict


class Watch:
    """One training under supervision. `done` is called at least once a second and after every wake-up."""

    def __init__(self, folder: RunFolder, training: Training, journal: Journal, patience: Patience) -> None:
        self._folder = folder
        self._training = training
        self._journal = journal
        self._patience = patience
        self._ladder = StopLadder(patience)
        self._post_mortem = PostMortem(folder.output_log)
        self._order_seen: int | None = None
        self._tails: dict[str, Tail] = {}
        self._state = RunState()
        self._exit: ExitStatus | None = None
        self._ended = Moment(0.0, 0.0)
        self._asked_leftovers_s: float | None = None
        self._saving: tuple[float | None, float] | None = None

    def pids(self) -> list[int]:
        """The processes to take samples of, with everything below them."""
        return [self._training.process.pid] if self._exit is None else sorted(self._observed())

    def terminate(self, now: Moment) -> None:
        """The supervisor itself was asked to end: so is the training, and it is supervised until it has."""
        self._ordered("terminate", now)

    def done(self, now: Moment) -> bool:
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
        leftovers = find_leftovers(self._training.group, self._observed())
        if self._goes_on(leftovers):
            return False
        if self._state.exited is None:
            self._record(self._post_mortem.examine(self._training.process.pid, self._exit, self._ended.t))
        return not self._waits_for(leftovers, now) and self._finish(leftovers, now)

    def _follow(self) -> None:
        for path in self._folder.event_files():
            tail = self._tails.setdefault(path.name, Tail(path))
            for line in tail.lines():
                event = decode(line)
                if event is not None:
                    self._state = fold(self._state, event)

    def _take_orders(self, now: Moment) -> None:
        found = read_order(self._folder.control)
        if found is None or found[1] == self._order_seen:
            return
        order, self._order_seen = found
        self._ordered(order, now)

    def _ordered(self, order: Order, now: Moment) -> None:
        if self._ladder.press(order, now.s) or order == "checkpoint":
            self._record(StopRequested(t=now.t, how=order))

    def _observed(self) -> set[int]:
        return {rank.pid for rank in self._state.ranks.values() if rank.pid is not None}

    def _press(self, now: Moment) -> None:
        state = self._state
        saving_since = self._saving_since(now) if self._exit is None else None
        evaluating = state.phase == "evaluating"
        seen = Situation(now.s, state.takes_orders, saving_since, state.rates.step_time_s, evaluating)
        due = self._ladder.due(seen)
        if due is not None:
            self._signal(due)

    def _saving_since(self, now: Moment) -> float | None:
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
            _send_group(group, number)
        for one in find_leftovers(group, self._observed()).own:
            asked = one.session == group and not is_loader_worker(one.pid)
            if asked or not alive or number == signal.SIGKILL:
                _send(one, number)

    def _goes_on(self, leftovers: Leftovers) -> bool:
        """Whether the command has returned well, but left the training at work: a script that ends with `&`."""
        if not leftovers.own or self._exit != ExitStatus(exit_code=0) or self._ladder.order is not None:
            return False
        self._journal.problem(f"The command returned, but its training goes on: {leftovers.names()}.")
        return True

    def _waits_for(self, leftovers: Leftovers, now: Moment) -> bool:
        """Whether to wait for what an ended training has left: first for it to notice, then for it to obey."""
        if not leftovers.own:
            return False
        if self._asked_leftovers_s is not None:
            return now.s - self._asked_leftovers_s < 2 * self._patience.leftover_s
        if now.s - self._ended.s >= self._patience.leftover_s:
            self._asked_leftovers_s = now.s
            for one in () if self._ladder.terminated else leftovers.own:
                _send(one, signal.SIGTERM)
        return True

    def _finish(self, leftovers: Leftovers, now: Moment) -> bool:
        if self._journal.in_place:
            self._follow()
        exited = self._state.exited or Exited(t=now.t)
        log = self._folder.output_log
        well = exited.exit_code == 0
        said = () if well else (log_says_out_of_memory(log), log_names_dead_rank(log), log_says_why(log))
        judged = verdict(self._state, exited, *said)
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


def _send_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def _send(process: Stat, number: signal.Signals) -> None:
    try:
        if is_alive(process):
            os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return
