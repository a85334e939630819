"""Escalates a stop: control file, SIGTERM, SIGKILL, each after a timeout; only `kill` interrupts a checkpoint.

stage        sent when                                                          next stage after
control      a stop is ordered and the training obeys the control file          stop_s, 5 steps, an evaluation
SIGTERM      a stop is ordered and it does not obey, or the stage before failed  kill_s, if `kill` was ordered
SIGKILL      `kill` was ordered and the process ignored SIGTERM                 -
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from tuner_tui.runs.store.supervisor_state import ORDERS, Order


@dataclass(frozen=True, slots=True)
class StopTimeouts:
    """Seconds to wait at each stage."""

    stop_s: float = 60.0
    """After asking a training to save and stop: at least this, or five steps. An evaluation, which has to end before
    the training can obey, gets as long as a save."""
    kill_s: float = 10.0
    """Between SIGTERM and SIGKILL, if `kill` was ordered."""
    saving_s: float = 300.0
    """For a checkpoint that is being written; a longer save counts as hung."""
    orphan_s: float = 5.0
    """After a failed training, for its remaining processes to exit; then they get SIGTERM."""


DEFAULT_TIMEOUTS = StopTimeouts()


@dataclass(frozen=True, slots=True)
class EscalationInput:
    """The training at `now`, in monotonic seconds. `obeys`: it saves and stops when asked to."""

    now: float
    obeys: bool
    saving_since: float | None = None
    step_time_s: float | None = None
    evaluating: bool = False


class StopEscalation:
    """Decides which signal is due. A later order can only be stronger."""

    def __init__(self, timeouts: StopTimeouts) -> None:
        self._timeouts = timeouts
        self._order: Order | None = None
        self._ordered_at = 0.0
        self._term_at: float | None = None
        self._killed = False

    @property
    def order(self) -> Order | None:
        """The strongest order so far; a checkpoint is none."""
        return self._order

    def press(self, order: Order, now: float) -> bool:
        """Take an order; return whether it changes anything."""
        if order == "checkpoint" or (self._order is not None and ORDERS.index(order) <= ORDERS.index(self._order)):
            return False
        self._order, self._ordered_at = order, now
        return True

    def due(self, situation: EscalationInput) -> signal.Signals | None:
        """The signal to send now, or None; it counts as sent."""
        if self._order is None or self._must_wait_for_save(situation):
            return None
        if self._term_at is None:
            return self._terminate(situation) if self._term_is_due(situation) else None
        late = situation.now - max(self._term_at, self._ordered_at) >= self._timeouts.kill_s
        if self._order == "kill" and late and not self._killed:
            self._killed = True
            return signal.SIGKILL
        return None

    def _terminate(self, situation: EscalationInput) -> signal.Signals:
        self._term_at = situation.now
        return signal.SIGTERM

    def _term_is_due(self, situation: EscalationInput) -> bool:
        if self._order != "stop" or not situation.obeys:
            return True
        evaluation_s = self._timeouts.saving_s if situation.evaluating else 0.0
        grace = max(self._timeouts.stop_s, 5 * (situation.step_time_s or 0.0), evaluation_s)
        return situation.now - self._ordered_at >= grace

    def _must_wait_for_save(self, situation: EscalationInput) -> bool:
        if self._order == "kill":
            return False
        since = situation.saving_since
        return since is not None and situation.now - since < self._timeouts.saving_s
