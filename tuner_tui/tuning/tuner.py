"""The tuning itself: one trial after another until the search, the time or the patience is at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.settings.fields import format_value
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.budget import Budget, minutes_for
from tuner_tui.tuning.run_trial import Asker, Done
from tuner_tui.tuning.space import SearchSpace
from tuner_tui.tuning.trial import Skipped, Trial, Tried, Verdict
from tuner_tui.tuning.tuning_folder import TuningFolder
from tuner_tui.tuning.tuning_log import Ending, Entry, TrialBegun, TrialDone, TuningEnded, TuningLog


class Searching(Protocol):
    """A search, see `search.Search`."""

    @property
    def space(self) -> SearchSpace:
        """What it may try."""

    @property
    def best(self) -> Tried | None:
        """The fastest settings that fit, so far."""

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """What is not tried, and why."""

    @property
    def conclusion(self) -> Verdict:
        """What the trials so far amount to, were it ended here."""

    @property
    def proposals(self) -> Sequence[Trial]:
        """The trials of which one comes next, the best first; none at the end."""

    def left(self) -> tuple[float, float] | None:
        """Seconds still needed, from and to."""


class Runner(Protocol):
    """Runs trials, see `run_trial.TrialRunner`."""

    def run(self, trial: Trial, asker: Asker) -> Done:
        """Run it to its end. Raises `LaunchError`."""

    def begun_from(self, start: Settings) -> Runner:
        """The same from another start."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the trials so far say. `start` is what the training began with, as far as that was seen."""

    start: Settings
    tried: tuple[Tried, ...] = ()
    unreachable: frozenset[str] = frozenset()

    def after(self, trial: Trial, done: Done) -> Known:
        """With one trial more. The first one shows the settings that nobody gave the training."""
        settings = trial.settings if self.tried else done.settings
        start = self.start if self.tried else done.settings
        tried = Tried(replace(trial, settings=settings), done.measurement)
        return Known(start, (*self.tried, tried), self.unreachable | done.unreachable)

    @property
    def room_bytes(self) -> int | None:
        """The least that the card had for the training in any trial: what others hold of it may move."""
        rooms = [one.measurement.room_bytes for one in self.tried if one.measurement.room_bytes is not None]
        return min(rooms, default=None)

    @property
    def dataset_samples(self) -> int | None:
        """How many samples there are."""
        found = (one.measurement.dataset_samples for one in self.tried)
        return next((samples for samples in found if samples is not None), None)

    @staticmethod
    def from_entries(start: Settings, entries: list[Entry]) -> Known:
        """As it was written down. What was ended from outside may be run again by whoever goes on with a tuning.

        Where that was closed for want of time, its confirming trials are mere trials now.
        """
        tried: tuple[Tried, ...] = ()
        for entry in entries:
            if isinstance(entry, TrialDone):
                tried = (*tried, entry.tried)
            elif isinstance(entry, TuningEnded):
                tried = tuple(one for one in tried if not one.measurement.passing)
                tried = tuple(map(_reopened, tried)) if entry.early else tried
        names = (name for entry in entries if isinstance(entry, TrialDone) for name in entry.unreachable)
        return Known(tried[0].trial.settings if tried else start, tried, frozenset(names))


def _reopened(tried: Tried) -> Tried:
    """A confirming trial closes a search: what was only closed for want of time goes on."""
    if tried.trial.purpose != "confirm":
        return tried
    return replace(tried, trial=replace(tried.trial, purpose="knob"))


SearchFrom = Callable[[Known, bool], Searching]
"""The search that knows so much; whether only start and winner are still to be compared."""


@dataclass
class Tuner:
    """Works on one tuning. `deadline_t` is when it has to be done, in seconds since the epoch.

    `early`: it was closed for want of time, when more could have been tried; `needed_s` is what the next trial needs,
    `lacking` are the changes that were given up for it.
    """

    folder: TuningFolder
    log: TuningLog
    runner: Runner
    search_from: SearchFrom
    deadline_t: float
    now: Callable[[], float] = time.time
    early: bool = False
    needed_s: float | None = None
    lacking: tuple[Skipped, ...] = ()

    def tune(self, known: Known) -> TuningEnded:
        """Go on from what is known to the end, which is returned but not written. Raises `LaunchError`, `OSError`."""
        runner = self.runner.begun_from(known.start) if known.tried else self.runner
        while not self.folder.aborted():
            search, trial = self._next(known)
            if trial is None:
                return self._end("finished", search.conclusion)
            done = runner.run(trial, self._asker(trial, search))
            if done.measurement.outcome == "aborted":
                break
            known = known.after(trial, done)
            runner = runner.begun_from(known.start)
            self._write(known, done)
        return self._broken_off(known)

    def _next(self, known: Known) -> tuple[Searching, Trial | None]:
        """The best proposal that the time left holds, with its search; where none does, one that only compares."""
        search = self.search_from(known, False)
        budget = self._budget(known, search)
        trial = next(filter(budget.fits, search.proposals), None)
        if trial is not None or not search.proposals:
            return search, trial
        self.early = True
        self.lacking = self.lacking or tuple(self._too_long(known, search))
        self.needed_s = self.needed_s or min(map(budget.needed_s, search.proposals))
        search = self.search_from(known, True)
        return search, next(filter(budget.fits, search.proposals), None)

    def _budget(self, known: Known, search: Searching) -> Budget:
        best = search.best
        return Budget(known.tried, None if best is None else best.trial.settings, self.deadline_t - self.now())

    def _asker(self, trial: Trial, search: Searching) -> Asker:
        def launched(run: RunFolder) -> None:
            low, high = search.left() or (None, None)
            begun = TrialBegun(t=self.now(), trial=trial, run=run.id, left_low_s=low, left_high_s=high)
            self.log.add(begun)

        return Asker(self.folder.aborted, launched, self.deadline_t)

    def _write(self, known: Known, done: Done) -> None:
        search = self.search_from(known, False)
        limit = search.space.limit_bytes
        entry = TrialDone(
            t=self.now(),
            tried=known.tried[-1],
            skipped=self._left_out(known, search),
            unreachable=tuple(sorted(done.unreachable)),
            capacity_bytes=search.space.capacity_bytes,
            limit_bytes=None if limit is None else int(limit),
        )
        self.log.add(entry)

    def _left_out(self, known: Known, search: Searching) -> tuple[Skipped, ...]:
        """What the search leaves, and of the rest what time lacks for."""
        told = {(one.knob, one.value) for one in search.skipped}
        lacking = self.lacking or self._too_long(known, search)
        return (*search.skipped, *(one for one in lacking if (one.knob, one.value) not in told))

    def _too_long(self, known: Known, search: Searching) -> Iterator[Skipped]:
        """The changes that time lacks for."""
        budget = self._budget(known, search)
        for trial in search.proposals:
            if trial.changed and not budget.fits(trial):
                knob = trial.changed[0]
                value = format_value(knob, getattr(trial.settings, knob))
                yield Skipped(knob=knob, value=value, reason="the time left does not hold its trial")

    def _broken_off(self, known: Known) -> TuningEnded:
        """Aborted, or out of time in the middle of a trial: what was measured stays, and what it amounts to is told."""
        search = self.search_from(known, False)
        aborted = self.folder.aborted()
        self.early = not aborted
        why = "It was aborted" if aborted else "The time for it was over"
        if search.best is None:
            ended = self._end("aborted" if aborted else "failed", None)
            return replace(ended, sentence=f"{why} before anything was measured. {ended.sentence}".rstrip())
        verdict = search.conclusion
        verdict = replace(verdict, sentence=f"{why} before its end. {verdict.sentence}")
        return self._end("aborted" if aborted else "finished", verdict)

    def _end(self, status: Ending, verdict: Verdict | None) -> TuningEnded:
        sentence = self._more_time() if self.early else ""
        return TuningEnded(t=self.now(), status=status, verdict=verdict, sentence=sentence, early=self.early)

    def _more_time(self) -> str:
        resume = f"tuner-tui tune --resume {self.folder.id}"
        if self.needed_s is None:
            return f"Time was short: `{resume}` tries more."
        minutes = minutes_for(self.needed_s)
        return f"Time was short: the next trial needs {minutes} min; `{resume} --most-minutes {minutes}` tries it."
