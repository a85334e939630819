"""A search, and trials whose results are given as a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.fakes.inventories import box
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Resolved, Settings
from tuner_tui.tuning.search.results import SettingsResult
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.search.space import SearchSpace
from tuner_tui.tuning.trial import (
    CompletedTrial,
    Measurement,
    Purpose,
    SkippedChange,
    Trial,
    TrialProtocol,
    TuningConclusion,
)
from tuner_tui.tuning.trial_runner import TrialCallbacks, TrialReport, TrialRunner
from tuner_tui.tuning.tuner import TrialHistory

BATCHES = (8, 16, 32)
"""Micro batches that the fake search tries, the start first."""


def measured(speed: float = 100.0, seconds: float = 10.0, **changes: Any) -> Measurement:
    """A trial that went well."""
    fields: dict[str, Any] = {"outcome": "measured", "samples_s": speed, "steps": 5, "spread": 0.01, "run_id": "r001"}
    return Measurement(**{**fields, "seconds": seconds, **changes})


class ListedSearch(Search, frozen=True):
    """Tries `BATCHES` one after another, then confirms once; `compare_only` goes straight to that."""

    @staticmethod
    def after(history: TrialHistory, compare_only: bool = False) -> ListedSearch:
        """Return the search after the trials so far."""
        space = SearchSpace(capacity_bytes=100, reserve=0.03, dataset_size=history.dataset_samples)
        return ListedSearch(history.start, space, history.trials, compare_only)

    @property
    def fastest(self) -> CompletedTrial | None:
        fit = [entry for entry in self.trials if entry.measurement.throughput is not None]
        return max(fit, key=lambda completed: completed.measurement.throughput or 0.0, default=None)

    @property
    def best(self) -> SettingsResult | None:
        return None if self.fastest is None else self.results.get(self.fastest.trial.settings)

    @cached_property
    def skipped(self) -> tuple[SkippedChange, ...]:
        return (SkippedChange(knob="torch_compile", value="on", reason="within the noise"),)

    @cached_property
    def conclusion(self) -> TuningConclusion:
        best = self.fastest
        assert best is not None
        start = self.trials[0].measurement
        ratio = None if self.proposals else 1.5
        return TuningConclusion(
            winner=best.trial.settings, sentence="Done.", ratio=ratio, start=start, best=best.measurement
        )

    @cached_property
    def proposals(self) -> tuple[Trial, ...]:
        if any(entry.trial.purpose == "confirm" for entry in self.trials):
            return ()
        number = len(self.trials) + 1
        if len(self.trials) < len(BATCHES) and not (self.compare_only and self.trials):
            micro = self._with(BATCHES[len(self.trials)]) if self.trials else self.start
            purpose: Purpose = "batch" if self.trials else "start"
            return (Trial(number=number, purpose=purpose, settings=micro, reason="next"),)
        assert self.fastest is not None
        return (Trial(number=number, purpose="confirm", settings=self.fastest.trial.settings, reason="again"),)

    def remaining_s(self) -> tuple[float, float] | None:
        return (10.0, 20.0) if self.trials else None

    def _with(self, micro: int) -> Settings:
        return self.start.changed(per_device_train_batch_size=micro)


REQUEST = LaunchRequest(
    job=CommandJob(command=("python", "train.py")), resolved=Resolved(Settings(), {}), cwd=Path("/")
)
RUNNER = TrialRunner(REQUEST, TrialProtocol())


@dataclass
class ListedGpus:
    """Answers each trial with the next measurement. `before` is called before each, with its number from 1."""

    answers: Iterable[Measurement]
    before: Callable[[int], None] = lambda number: None
    seen: Settings | None = None
    unreachable: frozenset[str] = frozenset()
    ran: list[Trial] = field(default_factory=list)
    starts: list[Settings] = field(default_factory=list)
    callbacks: list[TrialCallbacks] = field(default_factory=list)
    gpus: tuple[str | None, ...] = (None,)
    inventory: Inventory = field(default_factory=box)

    def __post_init__(self) -> None:
        self._answers = iter(self.answers)

    def run(self, gpu: str | None, runner: TrialRunner, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
        self.ran.append(trial)
        self.starts.append(runner.base.resolved.settings)
        self.callbacks.append(callbacks)
        callbacks.launched(RunFolder(Path(f"/nowhere/r{len(self.ran):03d}")))
        self.before(len(self.ran))
        if callbacks.aborted():
            return TrialReport(Measurement(outcome="aborted", seconds=1.0), trial.settings)
        return TrialReport(next(self._answers), self.seen or trial.settings, self.unreachable)
