"""The tuning itself: one trial after another until the search, the time or the patience is at its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from tuner_tui.runs.folder import RunFolder
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.run_trial import Asker, Done
from tuner_tui.tuning.space import SearchSpace
from tuner_tui.tuning.trial import Skipped, Trial, Tried, Verdict
from tuner_tui.tuning.tuning_folder import TuningFolder
from tuner_tui.tuning.tuning_log import Ending, Entry, TrialBegun, TrialDone, TuningEnded, TuningLog

CONFIRMING_TRIALS = 4
"""Start and winner, twice each: time for these is kept."""
SLACK = 1.3
"""The next trials may take that many times what the last ones took."""


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
    def verdict(self) -> Verdict | None:
        """How it ended; None while it has not."""

    def propose(self) -> Trial | None:
        """The next trial; None at the end."""

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
        """As it was written down. Where it was closed for want of time, its confirming trials are mere trials now."""
        tried: tuple[Tried, ...] = ()
        for entry in entries:
            if isinstance(entry, TrialDone):
                tried = (*tried, entry.tried)
            elif isinstance(entry, TuningEnded) and entry.early:
                tried = tuple(_reopened(one) for one in tried)
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

    `early`: it was closed for want of time, when more could have been tried.
    """

    folder: TuningFolder
    log: TuningLog
    runner: Runner
    search_from: SearchFrom
    deadline_t: float
    now: Callable[[], float] = time.time
    early: bool = False

    def tune(self, known: Known) -> TuningEnded:
        """Go on from what is known to the end, which is returned but not written. Raises `LaunchError`, `OSError`."""
        runner = self.runner.begun_from(known.start) if known.tried else self.runner
        while not self.folder.aborted():
            search = self._search(known)
            trial = search.propose()
            if trial is None:
                return self._end("finished", search.verdict)
            done = runner.run(trial, self._asker(trial, search))
            if done.measurement.outcome == "aborted":
                break
            known = known.after(trial, done)
            runner = runner.begun_from(known.start)
            self._write(known, done)
        return self._broken_off(known)

    def _search(self, known: Known) -> Searching:
        """The search, which closes where the time that is left is just that of closing."""
        search = self.search_from(known, False)
        if not self._short_of_time(known.tried):
            return search
        following = search.propose()
        self.early = self.early or (following is not None and following.purpose != "confirm")
        return self.search_from(known, True)

    def _short_of_time(self, tried: tuple[Tried, ...]) -> bool:
        if not tried:
            return False
        mean_s = sum(one.measurement.seconds for one in tried) / len(tried)
        return self.now() + (CONFIRMING_TRIALS + 1) * mean_s * SLACK > self.deadline_t

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
            skipped=search.skipped,
            unreachable=tuple(sorted(done.unreachable)),
            capacity_bytes=search.space.capacity_bytes,
            limit_bytes=None if limit is None else int(limit),
        )
        self.log.add(entry)

    def _broken_off(self, known: Known) -> TuningEnded:
        """Aborted, or out of time in the middle of a trial: what was measured stays, and the best of it is told."""
        best = self.search_from(known, False).best
        aborted = self.folder.aborted()
        self.early = not aborted
        why = "It was aborted" if aborted else "The time for it was over"
        if best is None:
            ended = self._end("aborted" if aborted else "failed", None)
            return replace(ended, sentence=f"{why} before anything was measured. {ended.sentence}".rstrip())
        start = known.tried[0].measurement
        sentence = f"{why} before the fastest so far was compared with the start."
        verdict = Verdict(winner=best.trial.settings, sentence=sentence, start=start, best=best.measurement)
        return self._end("aborted" if aborted else "finished", verdict)

    def _end(self, status: Ending, verdict: Verdict | None) -> TuningEnded:
        sentence = f"Time was short: `tuner-tui tune --resume {self.folder.id}` tries more." if self.early else ""
        return TuningEnded(t=self.now(), status=status, verdict=verdict, sentence=sentence, early=self.early)
