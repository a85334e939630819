"""Concludes a search: confirms the winner by comparing it with the start."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.advice.batch_scaling import batch_change
from tuner_tui.tuning.search.baseline import refused_trial
from tuner_tui.tuning.search.paired_test import MIN_PAIRS, PairedTest
from tuner_tui.tuning.search.results import SearchContext, SettingsResult, throughputs
from tuner_tui.tuning.trial import Measurement, Trial, TuningConclusion

MIN_PROMISE = 0.05
"""Gain over the start, within the noise of single runs, that is worth a comparison in pairs, which measures better."""
RESUME_HINT = "resume the tuning to confirm it"
KEPT = "The current settings are kept."
NOTHING_FASTER = "No faster settings were found beyond the noise"
INTERRUPTED_HINT = "Make sure that no other program stops the trials or takes their memory; then resume this tuning."


class Confirmation(Struct, frozen=True):
    """The end of a search: start and winner are compared, and the conclusion is drawn."""

    context: SearchContext

    def next(self, gpu: str | None = None, under_way: Sequence[Trial] = ()) -> Trial | None:
        """Return the next confirming trial, on `gpu` while `under_way` run on others; None if there is none."""
        winner = self.candidate
        if winner is None or winner.settings == self.context.start:
            return None
        if self._start_runs:
            test, reason = PairedTest(self.context, winner.settings), "current settings and winner, alternating"
            settings = None if test.decided else test.next(gpu, under_way)
        else:
            reason = "the current settings again: they were not measured"
            settings = winner.settings if len(winner.runs) < 2 and not under_way else None
        return None if settings is None else Trial(number=0, purpose="confirm", settings=settings, reason=reason)

    @property
    def candidate(self) -> SettingsResult | None:
        """The settings being confirmed as long as they fit, else the best ones."""
        results = self.context.results
        for completed in reversed(self.context.trials):
            if completed.trial.purpose == "confirm" and completed.trial.settings != self.context.start:
                result = results.get(completed.trial.settings)
                if result is not None and results.fits(result):
                    return result
                break
        return self._candidate_before_confirmation() or _promising(self.context)

    def _candidate_before_confirmation(self) -> SettingsResult | None:
        """Return the candidate before the first confirming run, as long as only the start was run since then.

        A machine that has become faster may make the start look best after the first half of a pair.
        """
        context = self.context
        first = next(
            (index for index, completed in enumerate(context.trials) if completed.trial.purpose == "confirm"), None
        )
        if first is None or any(completed.trial.settings != context.start for completed in context.trials[first:]):
            return None
        best = _promising(replace(context, trials=context.trials[:first]))
        result = None if best is None else context.results.get(best.settings)
        return result if result is not None and context.results.fits(result) else None

    def conclusion(self, nothing_else: str = "") -> TuningConclusion:
        """Return the result of the search; `nothing_else` says why no change was tried, if none was."""
        requested = self.context.requested
        refused = refused_trial(self.context.trials)
        if refused is not None:
            reason = refused.measurement.sentence or "it used its own settings"
            return TuningConclusion(winner=requested, sentence=f"The training ignores the settings: {reason}")
        winner = self.candidate
        if winner is None:
            return TuningConclusion(winner=requested, sentence=self._nothing_ran())
        if winner.settings == self.context.start:
            only = all(completed.trial.settings == winner.settings for completed in self.context.trials)
            result = f"Only the current settings were tried{nothing_else}" if only else NOTHING_FASTER
            disturbed = self._were_disturbed(winner)
            return self._conclude(winner, f"{result}; the current ones are kept.", disturbed=disturbed)
        if not self._start_runs:
            return self._conclude(winner, "The current settings do not run here; these are the fastest that run.")
        return self._compare(winner)

    def _compare(self, winner: SettingsResult) -> TuningConclusion:
        test, start = PairedTest(self.context, winner.settings), self.context.start_result
        assert start is not None
        start_fits, job = self.context.results.fits(start), self.context.results.job
        if test.interval is None:
            if start_fits:
                ratio = (winner.speed or 0.0) / (start.speed or 1.0)
                seen = f"{ratio:.2f}× the current speed was measured but not confirmed"
                sentence = f"{seen}: no comparison with the current settings was run; {RESUME_HINT}. {KEPT}"
                return self._conclude(start, sentence, disturbed=self._were_disturbed(start, winner))
            return self._conclude(
                winner, "The current settings leave too little memory free; these fit and are fastest."
            )
        (ratio, low, high), count = test.interval, len(test.ratios)
        over = "" if job is None else f" over the whole job of {job.steps:,} steps"
        pairs = f"{count} {'pair' if count == 1 else 'pairs'}"
        speed = f"{ratio:.2f}× the current speed{over} ({low:.2f} … {high:.2f}, {pairs})"
        if test.confirmed:
            return self._conclude(winner, f"Confirmed by alternating runs: {speed}.", test)
        if not start_fits:
            return self._conclude(winner, f"The current settings leave too little memory free: {speed}.", test)
        if test.disturbed and ratio > 1:
            sentence = f"{speed} was measured but not confirmed: the machine was busy ({self._load}); {RESUME_HINT}."
            return replace(self._conclude(start, f"{sentence} {KEPT}"), disturbed=True)
        doubt = "within the noise"
        if count < MIN_PAIRS or not test.in_both_orders:
            doubt = f"but {MIN_PAIRS} undisturbed pairs in both orders are needed"
        elif high < 1:
            doubt = "slower"
        sentence = (
            f"Not confirmed: the fastest reached {speed} in alternating runs, {doubt}; the current ones are kept."
        )
        return self._conclude(start, sentence, disturbed=test.disturbed)

    def _were_disturbed(self, *results: SettingsResult) -> bool:
        """Whether others kept the machine busy during a run of `results`, or during half of the trials of changes."""
        is_disturbed, trials = self.context.space.quiet.is_disturbed, self.context.trials
        changed = [trial.measurement for trial in trials if trial.trial.settings != self.context.start]
        mostly = bool(changed) and 2 * sum(map(is_disturbed, changed)) >= len(changed)
        return mostly or any(is_disturbed(run) for result in results for run in result.runs)

    @property
    def _load(self) -> str:
        return self.context.space.quiet.busy or "other programs use the CPU"

    def _conclude(
        self, winner: SettingsResult, sentence: str, test: PairedTest | None = None, disturbed: bool = False
    ) -> TuningConclusion:
        if disturbed:
            sentence += f" The machine was busy ({self._load}); resume the tuning when it is quiet to measure again."
        ratio, low, high = (test and test.interval) or (None, None, None)
        start, job = self.context.start_result, self.context.results.job
        before = None if start is None else _median_run(start)
        after = _median_run(winner)
        if test is not None and test.pairs:
            before, after = (_mean_run(runs) for runs in zip(*test.pairs, strict=True))
        change = batch_change(self.context.requested, winner.settings, self.context.space.processes)
        return TuningConclusion(
            winner=winner.settings,
            sentence=sentence,
            ratio=ratio,
            ratio_low=low,
            ratio_high=high,
            start=before,
            best=after,
            learning_rate_note="" if change is None else change.sentence,
            disturbed=disturbed,
            job_steps=None if job is None else job.steps,
            start_job_s=None if start is None or before is None else _job_s(before, start),
            best_job_s=_job_s(after, winner),
            pairs=None if test is None or test.interval is None else len(test.ratios),
        )

    def _nothing_ran(self) -> str:
        if not self.context.trials:
            return "Nothing was tried."
        last = self.context.trials[-1].measurement
        if any(completed.measurement.outcome == "measured" for completed in self.context.trials):
            return "All trials left too little memory free to be safe: use a smaller model or shorter samples."
        if last.outcome == "out-of-memory":
            return "Not even the smallest micro batch fits: use a smaller model, shorter samples or an adapter."
        sentence = last.sentence or f"No trial could be measured; the last one ended as {last.outcome}."
        return f"{sentence} {INTERRUPTED_HINT}" if last.passing else sentence

    @property
    def _start_runs(self) -> bool:
        start = self.context.start_result
        return start is not None and start.measured


def _job_s(run: Measurement, result: SettingsResult) -> float | None:
    """The seconds of the whole job at the throughput of `run`; None if its time is not compared."""
    rates = throughputs([run], result.tokens)
    return result.amount / result.rate_of(rates[0]) if result.amount and rates else None


def _promising(context: SearchContext) -> SettingsResult | None:
    """Return the best result; if that is the start, what looks clearly faster but is within the noise of single runs.

    On a noisy machine a large gain is within it too. Drift and load that last for a while cancel in pairs.
    """
    results, best = context.results, context.best
    if best is None or best.settings != context.start:
        return best
    fastest = results.fastest_fitting(results.results) or best
    return fastest if (fastest.speed or 0.0) > (best.speed or 0.0) * (1 + MIN_PROMISE) else best


def _median_run(result: SettingsResult) -> Measurement:
    """Return the measured run of median throughput, or the latest run if none was measured."""
    measured = sorted((run for run in result.runs if run.throughput), key=lambda run: run.throughput or 0.0)
    return measured[len(measured) // 2] if measured else result.last


def _mean_run(runs: Sequence[Measurement]) -> Measurement:
    """Return the latest of measured `runs` with the geometric means of their throughputs and their highest peak.

    Of the pairs of a comparison, these are the figures whose quotient is the ratio.
    """

    def mean(rates: Sequence[float | None]) -> float | None:
        positive = [rate for rate in rates if rate]
        return statistics.geometric_mean(positive) if len(positive) == len(runs) else None

    return replace(
        runs[-1],
        tokens_s=mean([run.tokens_s for run in runs]),
        samples_s=mean([run.samples_s for run in runs]),
        peak_bytes=max((run.peak_bytes for run in runs if run.peak_bytes is not None), default=None),
    )
