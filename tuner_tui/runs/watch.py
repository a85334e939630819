"""Watching one training to its end: its events, the orders given to it, its exit, and what it leaves behind."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

from tuner_tui.runs.codec import decode
from tuner_tui.runs.control import Order, read_order
from tuner_tui.runs.events import Event, Exited, Finished, StopRequested
from tuner_tui.runs.evidence import cgroup_kills, kernel_log_kill, log_says_killed, log_says_out_of_memory
from tuner_tui.runs.fold import fold
from tuner_tui.runs.folder import RunFolder
from tuner_tui.runs.journal import Journal
from tuner_tui.runs.ladder import Patience, Situation, StopLadder
from tuner_tui.runs.leftovers import Leftovers, find_leftovers
from tuner_tui.runs.processes import ProcessId, is_alive
from tuner_tui.runs.state import RunState
from tuner_tui.runs.tail import Tail
from tuner_tui.runs.training import ExitStatus, Training
from tuner_tui.runs.verdict import Verdict, verdict

SHELL_KILLED = 128 + signal.SIGKILL
"""The exit code of a shell whose command was killed."""
LEFTOVER_TERM_S = 5.0
"""Loader workers notice within five seconds that their trainer is gone; what is left then is asked to end."""
LEFTOVER_PATIENCE_S = 15.0
"""What a failed training leaves behind is waited for this long, then named."""


class Watch:
    """One training under supervision. `done` is called at least once a second and after every wake-up."""

    def __init__(self, folder: RunFolder, training: Training, journal: Journal, patience: Patience) -> None:
        self._folder = folder
        self._training = training
        self._journal = journal
        self._ladder = StopLadder(patience)
        self._order_seen: int | None = None
        self._kills_before = cgroup_kills("self")
        self._tails: dict[str, Tail] = {}
        self._state = RunState()
        self._exit: ExitStatus | None = None
        self._exit_t = 0.0
        self._asked_leftovers = False

    def pids(self) -> list[int]:
        """The processes to take samples of, with everything below them."""
        return [self._training.process.pid] if self._exit is None else sorted(self._observed())

    def terminate(self, now: float) -> None:
        """The supervisor itself was asked to end: so is the training, and it is supervised until it has."""
        self._ordered("terminate", now)

    def done(self, now: float) -> bool:
        """Look at everything once; True when the run is over and written down. `now` in seconds since the epoch."""
        self._follow()
        self._take_orders(now)
        self._press(now)
        if self._exit is None:
            self._exit = self._training.collect()
            if self._exit is None:
                return False
            self._exit_t = now
            self._exited(now)
        else:
            self._training.collect()
        leftovers = find_leftovers(self._training.group, self._observed())
        return not self._waits_for(leftovers, now) and self._finish(leftovers, now)

    def _follow(self) -> None:
        for path in self._folder.event_files():
            tail = self._tails.setdefault(path.name, Tail(path))
            for line in tail.lines():
                event = decode(line)
                if event is not None:
                    self._state = fold(self._state, event)

    def _take_orders(self, now: float) -> None:
        found = read_order(self._folder.control)
        if found is None or found[1] == self._order_seen:
            return
        order, self._order_seen = found
        self._ordered(order, now)

    def _ordered(self, order: Order, now: float) -> None:
        if self._ladder.press(order, now) or order == "checkpoint":
            self._record(StopRequested(t=now, how=order))

    def _observed(self) -> set[int]:
        return {rank.pid for rank in self._state.ranks.values() if rank.pid is not None}

    def _press(self, now: float) -> None:
        state = self._state
        saving_since = state.phase_since_t if state.phase == "saving" and self._exit is None else None
        evaluating = state.phase == "evaluating"
        seen = Situation(now, bool(self._observed()), saving_since, state.rates.step_time_s, evaluating)
        due = self._ladder.due(seen)
        if due is not None:
            self._signal(due)

    def _signal(self, number: signal.Signals) -> None:
        _send_group(self._training.group, number)
        for one in find_leftovers(self._training.group, self._observed()).own:
            if one.pid in self._observed() and one.pid != self._training.process.pid:  # torchrun's have own groups
                _send(one, number)

    def _exited(self, now: float) -> None:
        assert self._exit is not None
        pid = self._training.process.pid
        kills = cgroup_kills("self")
        counted = kills is not None and self._kills_before is not None and kills > self._kills_before
        line = kernel_log_kill(pid) if self._exit.signal == signal.SIGKILL else None
        evidence = (["the cgroup counted a kill for memory"] if counted else []) + ([line] if line else [])
        killed = line is not None or (counted and self._was_killed())
        self._record(
            Exited(
                t=now,
                exit_code=self._exit.exit_code,
                signal=self._exit.signal,
                oom_kill=killed if kills is not None or line is not None else None,
                evidence=tuple(evidence),
            )
        )

    def _was_killed(self) -> bool:
        """Whether the training, or a process it needs, was killed: told by its exit, a shell's, or its own words."""
        assert self._exit is not None
        killed = self._exit.signal == signal.SIGKILL or self._exit.exit_code == SHELL_KILLED
        return killed or (self._exit.exit_code != 0 and log_says_killed(self._folder.output_log))

    def _waits_for(self, leftovers: Leftovers, now: float) -> bool:
        """Whether the run goes on for what is left of it."""
        if not leftovers.own:
            return False
        if self._exit == ExitStatus(exit_code=0) and self._ladder.order is None:
            self._journal.problem(f"The command returned, but the training goes on: {leftovers.sentence()}.")
            return True
        waited = now - self._exit_t
        if waited >= LEFTOVER_TERM_S and not self._asked_leftovers:
            self._asked_leftovers = True
            for one in leftovers.own:
                _send(one, signal.SIGTERM)
        return waited < LEFTOVER_PATIENCE_S

    def _finish(self, leftovers: Leftovers, now: float) -> bool:
        self._follow()
        exited = self._state.exited or Exited(t=now)
        judged = verdict(self._state, exited, log_says_out_of_memory(self._folder.output_log))
        sentence = " ".join(filter(None, [judged.sentence, _left(leftovers)]))
        self._record(
            Finished(
                t=now,
                outcome=judged.outcome,
                sentence=sentence,
                step=self._state.step,
                total_steps=self._state.total_steps,
            )
        )
        self._close(Verdict(judged.outcome, sentence), exited)
        return True

    def _close(self, judged: Verdict, exited: Exited) -> None:
        self._journal.update(
            lambda known: replace(
                known,
                ended_t=exited.t,
                exit_code=exited.exit_code,
                signal=exited.signal,
                outcome=judged.outcome,
                sentence=judged.sentence,
            )
        )

    def _record(self, event: Event) -> None:
        """Fold at once too: on a full disk the line is never read back. Folding it twice changes nothing."""
        self._journal.event(event)
        self._state = fold(self._state, event)


def _left(leftovers: Leftovers) -> str:
    sentence = leftovers.sentence()
    return f"It left processes running: {sentence.removeprefix('left behind: ')}." if sentence else ""


def _send_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def _send(process: ProcessId, number: signal.Signals) -> None:
    try:
        if is_alive(process):
            os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return
