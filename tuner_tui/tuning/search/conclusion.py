"""The confirming trials at the end of a search, and its conclusion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner_tui.advice.batch_scaling import batch_change
from tuner_tui.core.units import format_share
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.baseline import refused_trial
from tuner_tui.tuning.search.paired_test import MAX_PAIRS, MIN_PAIRS, PairedTest
from tuner_tui.tuning.search.results import SearchResults, SettingsResult
from tuner_tui.tuning.search.skip_reasons import main_reasons, only_start_ran
from tuner_tui.tuning.search.space import SearchSpace
from tuner_tui.tuning.trial import CompletedTrial, Measurement, SkippedChange, Trial, TuningConclusion

NOISY_BOX = 0.1
"""From here on the noise hides gains that are worth having."""
INTERRUPTED_HINT = (
    "See that nothing else on this box ends it or takes its memory; `tuner-tui tune --resume` then tries again."
)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The end of a search from `start`; `first` is the start, cut to the size of the data."""

    start: Settings
    first: Settings
    space: SearchSpace
    tried: tuple[CompletedTrial, ...]
    results: SearchResults

    def next(self) -> Trial | None:
        """The next confirming trial; None where enough is known."""
        winner = self.candidate
        if winner is None or winner.settings == self.first:
            return None
        if not self._start_runs:
            return None if len(winner.runs) > 1 else self._trial(winner.settings, "once more: no start to compare with")
        pairs = self._pairs(winner)
        if pairs.decided:
            return None
        return self._trial(pairs.next(), "start and winner in turn")

    def left(self) -> tuple[int, int]:
        """Confirming trials still needed: at least, at most. None where nothing turns out to be faster."""
        done = sum(one.trial.purpose == "confirm" for one in self.tried)
        winner = self.candidate
        needed = winner is not None and winner.settings != self.first
        return max(0, 2 * MIN_PAIRS - done) if needed else 0, max(0, 2 * MAX_PAIRS - done)

    @property
    def candidate(self) -> SettingsResult | None:
        """The settings under confirmation while they still fit, else the best."""
        for one in reversed(self.tried):
            if one.trial.purpose == "confirm" and one.trial.settings != self.first:
                result = self.results.get(one.trial.settings)
                if result is not None and self.results.trusted(result):
                    return result
                break
        return self._chosen() or self.results.best

    def _chosen(self) -> SettingsResult | None:
        """Whom the first confirming run was begun for: on a box that drifts, the start alone may now look faster."""
        begun = next((place for place, one in enumerate(self.tried) if one.trial.purpose == "confirm"), None)
        if begun is None or any(one.trial.settings != self.first for one in self.tried[begun:]):
            return None
        best = SearchResults.of(self.tried[:begun], self.results.limit_bytes).best
        found = None if best is None else self.results.get(best.settings)
        return found if found is not None and self.results.trusted(found) else None

    def verdict(self, skipped: Sequence[SkippedChange] = ()) -> TuningConclusion:
        """How it ended. `skipped` says why nothing more was tried, where nothing was left to try."""
        ignored = refused_trial(self.tried)
        if ignored is not None:
            said = ignored.measurement.sentence or "it trained with settings of its own"
            return TuningConclusion(
                winner=self.start, sentence=f"The training does not take the settings it is given: {said}"
            )
        winner = self.candidate
        if winner is None:
            return TuningConclusion(winner=self.start, sentence=self._nothing_ran())
        if winner.settings == self.first:
            return self._verdict(winner, self._start_stays(skipped) + self._unquiet())
        if not self._start_runs:
            return self._verdict(winner, "The start does not run here; these are the fastest settings that do.")
        return self._compared(winner)

    def _start_stays(self, skipped: Sequence[SkippedChange]) -> str:
        if not only_start_ran(self.tried):
            return "Nothing that was tried is faster than the start beyond the noise: it stays."
        reasons = main_reasons(skipped)
        return f"Nothing but the start was tried: {reasons}." if reasons else "Nothing but the start was tried."

    def _compared(self, winner: SettingsResult) -> TuningConclusion:
        interval = self._pairs(winner).interval
        if interval is None:
            return self._verdict(winner, "The fastest settings of the trials; they were not compared with the start.")
        ratio, low, high = interval
        start = self.results.get(self.first)
        count = len(self._pairs(winner).ratios)
        spread = f"{ratio:.2f}× the start ({low:.2f} … {high:.2f}, {count} {'pair' if count == 1 else 'pairs'})"
        if low <= 1 and start is not None and self.results.trusted(start):
            said = "slower" if high < 1 else "within the noise"
            sentence = f"In turn with the start the fastest came to {spread}, {said}: the start stays."
            return self._verdict(start, sentence + self._unquiet(), (ratio, low, high))
        words = "Confirmed in turn with the start" if low > 1 else "The start leaves too little memory free"
        return self._verdict(winner, f"{words}: {spread}.", (ratio, low, high))

    def _verdict(
        self, winner: SettingsResult, sentence: str, interval: tuple[float, float, float] | None = None
    ) -> TuningConclusion:
        kept = winner.settings == self.first
        ratio, low, high = (None, None, None) if interval is None or kept else interval
        started = self.results.get(self.first)
        return TuningConclusion(
            winner=winner.settings,
            sentence=sentence,
            ratio=ratio,
            ratio_low=low,
            ratio_high=high,
            start=None if started is None else median_run(started),
            best=median_run(winner),
            learning_rate_note=self._learning_rate(winner.settings),
        )

    def _unquiet(self) -> str:
        """What is to be said of a box on which one settings runs at different speeds."""
        noise = self.results.noise
        if noise < NOISY_BOX:
            return ""
        apart = format_share(noise)
        return f" Runs of one settings differ by up to {apart} here, so smaller gains cannot be seen: is the box busy?"

    def _learning_rate(self, settings: Settings) -> str:
        change = batch_change(self.start, settings, self.space.processes)
        return "" if change is None else change.sentence

    def _nothing_ran(self) -> str:
        if not self.tried:
            return "Nothing was tried."
        last = self.tried[-1].measurement
        if last.outcome == "out-of-memory":
            return "Not even the smallest micro batch fits: take a smaller model, shorter samples or an adapter."
        said = last.sentence or f"No trial could be measured; the last one ended as {last.outcome}."
        return f"{said} {INTERRUPTED_HINT}" if last.passing else said

    @property
    def _start_runs(self) -> bool:
        started = self.results.get(self.first)
        return started is not None and started.measured

    def _pairs(self, winner: SettingsResult) -> PairedTest:
        return PairedTest(self.first, winner.settings, self.tried, self.results)

    def _trial(self, settings: Settings, reason: str) -> Trial:
        return Trial(number=0, purpose="confirm", settings=settings, reason=reason)


def median_run(result: SettingsResult) -> Measurement:
    """The run in the middle of those that were measured, the last one where none was."""
    measured = sorted((run for run in result.runs if run.throughput), key=lambda run: run.throughput or 0.0)
    return measured[len(measured) // 2] if measured else result.last
