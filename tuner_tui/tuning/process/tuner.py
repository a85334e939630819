"""The tuning loop: reads the box, builds the search, runs one trial after another, and saves the winner."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tuner_tui.advice.recommend.memory_estimator import JobMemoryEstimator
from tuner_tui.advice.recommend.target import limit_gpu_memory, target_of
from tuner_tui.core.units import GIB
from tuner_tui.hardware.detect import read_inventory
from tuner_tui.hardware.interpreter.probe import Interpreter, probe_interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.memory.fit import PeakModel
from tuner_tui.runs.launch.prepare import LaunchRequest, prepare
from tuner_tui.runs.read.measured_memory import measured_runs
from tuner_tui.runs.store.folder import RunFolder, runs_dir, state_dir
from tuner_tui.settings.distributed import read_accelerate_config
from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.fields import format_value
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.process.daemon import TunerSpec
from tuner_tui.tuning.process.time_budget import TimeBudget, minutes_for
from tuner_tui.tuning.process.trial_log import (
    LogEntry,
    TrialCompleted,
    TrialLog,
    TrialStarted,
    TuningEnded,
    TuningEndStatus,
    TuningStarted,
    completed_trials,
    read_entries,
)
from tuner_tui.tuning.process.tuned_preset import save_tuned_preset, tuned_preset, tuned_preset_name
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.search.skip_reasons import only_start_ran
from tuner_tui.tuning.search.space import SearchSpace
from tuner_tui.tuning.search.space_builder import build_space, with_candidates
from tuner_tui.tuning.store import TuningFolder, TuningRecord, read_tuning_record
from tuner_tui.tuning.trial import CompletedTrial, SkippedChange, Trial, TuningConclusion
from tuner_tui.tuning.trials.runner import TrialCallbacks, TrialReport, TrialRunner, end_run
from tuner_tui.tuning.trials.trial_protocol import TrialProtocol


class SearchLike(Protocol):
    """A search, see `search.Search`."""

    @property
    def space(self) -> SearchSpace:
        """What it may try."""

    @property
    def best(self) -> CompletedTrial | None:
        """The fastest settings that fit, so far."""

    @property
    def skipped(self) -> tuple[SkippedChange, ...]:
        """What is not tried, and why."""

    @property
    def conclusion(self) -> TuningConclusion:
        """What the trials so far amount to, were it ended here."""

    @property
    def proposals(self) -> Sequence[Trial]:
        """The trials of which one comes next, the best first; none at the end."""

    def left(self) -> tuple[float, float] | None:
        """Seconds still needed, from and to."""


class RunnerLike(Protocol):
    """Runs trials, see `run_trial.TrialRunner`."""

    def run(self, trial: Trial, asker: TrialCallbacks) -> TrialReport:
        """Run it to its end. Raises `LaunchError`."""

    def begun_from(self, start: Settings) -> RunnerLike:
        """The same from another start."""


@dataclass(frozen=True, slots=True)
class TrialHistory:
    """What the trials so far say. `start` is what the training began with, as far as that was seen."""

    start: Settings
    tried: tuple[CompletedTrial, ...] = ()
    unreachable: frozenset[str] = frozenset()

    def after(self, trial: Trial, done: TrialReport) -> TrialHistory:
        """With one trial more. The first one shows the settings that nobody gave the training."""
        settings = trial.settings if self.tried else done.settings
        start = self.start if self.tried else done.settings
        tried = CompletedTrial(replace(trial, settings=settings), done.measurement)
        return TrialHistory(start, (*self.tried, tried), self.unreachable | done.unreachable)

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
    def from_entries(start: Settings, entries: list[LogEntry]) -> TrialHistory:
        """As it was written down. What was ended from outside may be run again by whoever goes on with a tuning.

        Where that was closed for want of time, its confirming trials are mere trials now.
        """
        tried: tuple[CompletedTrial, ...] = ()
        for entry in entries:
            if isinstance(entry, TrialCompleted):
                tried = (*tried, entry.tried)
            elif isinstance(entry, TuningEnded):
                tried = tuple(one for one in tried if not one.measurement.passing)
                tried = tuple(map(_reopened, tried)) if entry.early else tried
        names = (name for entry in entries if isinstance(entry, TrialCompleted) for name in entry.unreachable)
        return TrialHistory(tried[0].trial.settings if tried else start, tried, frozenset(names))


def _reopened(tried: CompletedTrial) -> CompletedTrial:
    """A confirming trial closes a search: what was only closed for want of time goes on."""
    if tried.trial.purpose != "confirm":
        return tried
    return replace(tried, trial=replace(tried.trial, purpose="knob"))


SearchFactory = Callable[[TrialHistory, bool], SearchLike]
"""The search that knows so much; whether only start and winner are still to be compared."""


@dataclass
class Tuner:
    """Works on one tuning. `deadline_t` is when it has to be done, in seconds since the epoch.

    `early`: it was closed for want of time, when more could have been tried; `needed_s` is what the next trial needs,
    `lacking` are the changes that were given up for it.
    """

    folder: TuningFolder
    log: TrialLog
    runner: RunnerLike
    search_from: SearchFactory
    deadline_t: float
    now: Callable[[], float] = time.time
    early: bool = False
    needed_s: float | None = None
    lacking: tuple[SkippedChange, ...] = ()

    def tune(self, known: TrialHistory) -> TuningEnded:
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

    def _next(self, known: TrialHistory) -> tuple[SearchLike, Trial | None]:
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

    def _budget(self, known: TrialHistory, search: SearchLike) -> TimeBudget:
        best = search.best
        return TimeBudget(known.tried, None if best is None else best.trial.settings, self.deadline_t - self.now())

    def _asker(self, trial: Trial, search: SearchLike) -> TrialCallbacks:
        def launched(run: RunFolder) -> None:
            low, high = search.left() or (None, None)
            begun = TrialStarted(t=self.now(), trial=trial, run=run.id, left_low_s=low, left_high_s=high)
            self.log.add(begun)

        return TrialCallbacks(self.folder.aborted, launched, self.deadline_t)

    def _write(self, known: TrialHistory, done: TrialReport) -> None:
        search = self.search_from(known, False)
        limit = search.space.limit_bytes
        entry = TrialCompleted(
            t=self.now(),
            tried=known.tried[-1],
            skipped=self._left_out(known, search),
            unreachable=tuple(sorted(done.unreachable)),
            capacity_bytes=search.space.capacity_bytes,
            limit_bytes=None if limit is None else int(limit),
        )
        self.log.add(entry)

    def _left_out(self, known: TrialHistory, search: SearchLike) -> tuple[SkippedChange, ...]:
        """What the search leaves, and of the rest what time lacks for."""
        told = {(one.knob, one.value) for one in search.skipped}
        lacking = self.lacking or self._too_long(known, search)
        return (*search.skipped, *(one for one in lacking if (one.knob, one.value) not in told))

    def _too_long(self, known: TrialHistory, search: SearchLike) -> Iterator[SkippedChange]:
        """The changes that time lacks for."""
        budget = self._budget(known, search)
        for trial in search.proposals:
            if trial.changed and not budget.fits(trial):
                knob = trial.changed[0]
                value = format_value(knob, getattr(trial.settings, knob))
                yield SkippedChange(knob=knob, value=value, reason="the time left does not hold its trial")

    def _broken_off(self, known: TrialHistory) -> TuningEnded:
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

    def _end(self, status: TuningEndStatus, verdict: TuningConclusion | None) -> TuningEnded:
        sentence = self._more_time() if self.early else ""
        return TuningEnded(t=self.now(), status=status, verdict=verdict, sentence=sentence, early=self.early)

    def _more_time(self) -> str:
        resume = f"tuner-tui tune --resume {self.folder.id}"
        if self.needed_s is None:
            return f"Time was short: `{resume}` tries more."
        minutes = minutes_for(self.needed_s)
        return f"Time was short: the next trial needs {minutes} min; `{resume} --most-minutes {minutes}` tries it."


MIN_ROOM_CHANGE = 0.02
"""Share of a card's room by which it may differ between trials without a word."""


def tune(folder: TuningFolder, orders: TunerSpec, log: TrialLog) -> TuningEnded:
    """Begin or go on with the tuning in `folder`. Returns how it ended, for the log; the winner is saved.

    Raises `LaunchError`, `SettingsError` and `RecordError`.
    """
    record = read_tuning_record(folder)
    entries = read_entries(folder)
    request = launch_request_of(folder, record, orders)
    _end_orphaned_trial(entries, request)
    inventory, interpreter = read_inventory(state_dir(orders.environ)), training_interpreter(request)
    prior = estimate_prior(
        limit_gpu_memory(inventory, record.memory_limit_bytes), interpreter, orders, record.resolved.settings
    )
    setting = TuningContext(record, orders, inventory, interpreter, prior)
    known = TrialHistory.from_entries(record.resolved.settings, entries)
    deadline_t = time.time() + orders.minutes * 60
    space = setting.space(known)
    limit = None if space.limit_bytes is None else int(space.limit_bytes)
    log.add(TuningStarted(t=time.time(), capacity_bytes=space.capacity_bytes, limit_bytes=limit, deadline_t=deadline_t))
    tuner = Tuner(
        folder, log, TrialRunner(request, TrialProtocol.within(orders.minutes)), setting.search_from(), deadline_t
    )
    ended = tuner.tune(known)
    moved = describe_room_change(completed_trials(read_entries(folder)))
    ended = replace(ended, sentence=" ".join(filter(None, [ended.sentence, moved])))
    return _save_winner(ended, setting, folder, entries)


@dataclass(frozen=True, slots=True)
class TuningContext:
    """What is tuned, and where. `prior` is what its memory was estimated to be before any run."""

    record: TuningRecord
    orders: TunerSpec
    inventory: Inventory
    interpreter: Interpreter
    prior: PeakModel | None = None

    def space(self, known: TrialHistory) -> SearchSpace:
        """What may be tried, by what is known now. Raises `SettingsError`."""
        limit = self.record.memory_limit_bytes
        space = build_space(
            limit_gpu_memory(self.inventory, limit),
            self.interpreter,
            self.orders.job,
            known.start,
            memory_limit_bytes=min((size for size in (limit, known.room_bytes) if size is not None), default=None),
            dataset_size=known.dataset_samples,
            hold_effective_batch=not self.record.free_batch,
            prior=self.prior,
            accelerate=read_accelerate_config(self.orders.job, self.orders.environ, Path(self.record.cwd)),
        )
        unreachable = space.unreachable | known.unreachable
        return with_candidates(replace(space, unreachable=unreachable), known.start)

    def search_from(self) -> SearchFactory:
        """The search of this tuning."""
        return lambda known, closing: Search(known.start, self.space(known), known.tried, closing)


def launch_request_of(folder: TuningFolder, record: TuningRecord, orders: TunerSpec) -> LaunchRequest:
    """The launch of the training as it was asked for."""
    return LaunchRequest(
        job=orders.job,
        resolved=record.resolved,
        interpreter=record.interpreter,
        cwd=Path(record.cwd),
        preset=record.preset,
        memory_limit_bytes=record.memory_limit_bytes,
        environ=orders.environ,
        tuning=folder.id,
    )


def training_interpreter(request: LaunchRequest) -> Interpreter:
    """The Python that trains. Raises `LaunchError`."""
    return probe_interpreter(Path(prepare(request).interpreter.path))


def estimate_prior(
    inventory: Inventory, interpreter: Interpreter, orders: TunerSpec, start: Settings
) -> PeakModel | None:
    """The peak of the built-in job on a card, without its context, which a trial does not count either.

    None elsewhere: what a limit counts on the host is no resident set, which is what the estimate is of.
    """
    target = target_of(inventory, interpreter, orders.job)
    if not target.on_gpu or not isinstance(orders.job, BuiltinJob):
        return None
    runs = measured_runs(orders.job, runs_dir(orders.environ))
    found = JobMemoryEstimator(orders.job, target.device, target.processes, interpreter, runs).at_once(start)
    if found is None:
        return None
    context, peak = found.overhead.context_bytes, found.peak
    return replace(peak, base_bytes=peak.base_bytes - context, floor_bytes=max(0.0, peak.floor_bytes - context))


def _end_orphaned_trial(entries: list[LogEntry], request: LaunchRequest) -> None:
    """End the trial that a killed process left at work: what it measures nobody reads."""
    begun = [entry for entry in entries if isinstance(entry, TrialStarted | TrialCompleted)]
    if begun and isinstance(begun[-1], TrialStarted):
        end_run(RunFolder(runs_dir(request.environ) / begun[-1].run))


def describe_room_change(tried: Sequence[CompletedTrial]) -> str:
    """What is to be said where other programs took more or less of the card from trial to trial; else empty."""
    rooms = [one.measurement.room_bytes for one in tried if one.measurement.room_bytes is not None]
    if not rooms or max(rooms) - min(rooms) <= MIN_ROOM_CHANGE * max(rooms):
        return ""
    moved, least = (max(rooms) - min(rooms)) / GIB, min(rooms) / GIB
    return f"What other programs held of the card moved by {moved:.1f} GiB; the least room was {least:.1f} GiB."


def _save_winner(
    ended: TuningEnded, setting: TuningContext, folder: TuningFolder, earlier: Sequence[LogEntry]
) -> TuningEnded:
    """With the winner saved, where something was measured; once, where a tuning that was at its end is gone on with."""
    verdict, record = ended.verdict, setting.record
    if ended.status != "finished" or verdict is None or verdict.best is None or verdict.best.throughput is None:
        return ended
    if only_start_ran(completed_trials(read_entries(folder))):
        return replace(ended, sentence=f"No preset is saved. {ended.sentence}".rstrip())
    before = next((one for one in reversed(earlier) if isinstance(one, TuningEnded)), None)
    if before is not None and before.verdict == verdict and before.preset and Path(before.preset).exists():
        return replace(ended, preset=before.preset)
    name = record.save_as or tuned_preset_name(record.preset, setting.orders.job)
    preset = tuned_preset(name, verdict, record.resolved, setting.orders.job, setting.inventory, folder.id)
    try:
        return replace(ended, preset=str(save_tuned_preset(preset)))
    except PresetError as error:
        return replace(ended, sentence=f"The winner could not be saved: {error}")
