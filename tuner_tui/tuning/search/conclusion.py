"""Concludes a search: confirms the winner, and after how many steps a change pays that takes longer to start."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tuner_tui.advice.batch_scaling import batch_change
from tuner_tui.core.units import format_share
from tuner_tui.settings.model import FIELDS, Settings, format_value
from tuner_tui.tuning.search.baseline import refused_trial
from tuner_tui.tuning.search.paired_test import MAX_PAIRS, MIN_PAIRS, PairedTest
from tuner_tui.tuning.search.results import SearchContext, SearchResults, SettingsResult, throughputs
from tuner_tui.tuning.search.space import ACCUMULATION, MICRO, NOT_REACHED
from tuner_tui.tuning.trial import CompletedTrial, Measurement, SkippedChange, Trial, TuningConclusion

NO_GAIN = ("within the noise", "no gain possible")
"""Words of the reasons to skip a change that stand for the same: it would gain too little."""
MAX_REASONS = 3
MIN_OVERHEAD_S = 1.0
"""Additional start-up below which a change is not said to pay after some steps."""


def payback_steps(result: SettingsResult, before: SettingsResult, results: SearchResults) -> int | None:
    """Return the steps after which `result` has made up for starting later than `before`.

    0 if it does not start later; None if it never makes up for it, or that is unknown.
    """
    job = results.job
    amount = None if job is None else job.amount(results.tokens)
    if job is None or amount is None or not result.throughput or not before.throughput:
        return None
    if result.overhead_s is None or before.overhead_s is None:
        return None
    extra_s = result.overhead_s - before.overhead_s
    growth = 1.0 if result.job is None else result.job.growth
    saved_s = amount / job.steps * (1 / before.throughput - growth / result.throughput)
    if extra_s <= 0:
        return 0
    return math.ceil(round(extra_s / saved_s, 6)) if saved_s > 0 else None


def rejected_for_overhead(winner: SettingsResult, results: SearchResults) -> str:
    """Return a sentence on the fastest settings in steady state that are too late for this job; empty if none are."""
    job = results.job
    if job is None:
        return ""
    late = [(one, steps) for one in _faster(winner, results) if (steps := payback_steps(one, winner, results))]
    late = [(one, steps) for one, steps in late if steps > job.steps]
    if not late:
        return ""
    fastest, steps = max(late, key=lambda one: one[0].throughput or 0.0)
    changes = _describe_changes(winner.settings, fastest.settings)
    return f"{changes} pays off after {format_steps(steps)} steps; this job has {job.steps:,}."


def format_steps(steps: int) -> str:
    """Return a number of steps with two significant digits: `9,000`, `130`."""
    digits = max(0, len(str(steps)) - 2)
    return f"{math.ceil(steps / 10**digits) * 10**digits:,}"


def _faster(winner: SettingsResult, results: SearchResults) -> Iterable[SettingsResult]:
    """The settings that fit and are faster than the winner in steady state, but start noticeably later."""
    for one in results.results:
        if not results.fits(one) or one.overhead_s is None or winner.overhead_s is None:
            continue
        faster = (one.throughput or 0.0) > (winner.throughput or 0.0) * (1 + results.noise)
        if faster and one.overhead_s - winner.overhead_s >= MIN_OVERHEAD_S:
            yield one


def _describe_changes(before: Settings, after: Settings) -> str:
    """`compile on`, or several changes; accumulation follows the micro batch and is not named."""
    names = [name for name in Settings.model_fields if getattr(after, name) != getattr(before, name)]
    named = [name for name in names if name != ACCUMULATION or MICRO not in names]
    return ", ".join(f"{FIELDS[name].label} {format_value(name, getattr(after, name)) or 'none'}" for name in named)


NOISY_MACHINE = 0.1
"""Noise above which worthwhile gains cannot be measured."""
MIN_PROMISE = 0.05
"""Gain over the start, within the noise of single runs, that is worth a comparison in pairs, which measures better."""
INTERRUPTED_HINT = (
    "Make sure nothing else on this machine stops it or uses its memory; then run `tuner-tui tune --resume`."
)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The end of a search: start and winner are compared, and the conclusion is drawn."""

    context: SearchContext

    def next(self) -> Trial | None:
        """Return the next confirming trial, or None if the comparison is decided."""
        winner = self.candidate
        if winner is None or winner.settings == self.context.start:
            return None
        if not self._start_runs:
            return None if len(winner.runs) > 1 else _trial(winner.settings, "once more: the start was not measured")
        test = PairedTest(self.context, winner.settings)
        return None if test.decided else _trial(test.next(), "start and winner, alternating")

    def trials_left(self) -> tuple[int, int]:
        """Return the minimum and maximum number of confirming trials still needed."""
        done = sum(one.trial.purpose == "confirm" for one in self.context.trials)
        winner = self.candidate
        needed = winner is not None and winner.settings != self.context.start
        return max(0, 2 * MIN_PAIRS - done) if needed else 0, max(0, 2 * MAX_PAIRS - done)

    @property
    def candidate(self) -> SettingsResult | None:
        """The settings being confirmed as long as they fit, else the best ones."""
        results = self.context.results
        for one in reversed(self.context.trials):
            if one.trial.purpose == "confirm" and one.trial.settings != self.context.start:
                result = results.get(one.trial.settings)
                if result is not None and results.fits(result):
                    return result
                break
        return self._candidate_before_confirmation() or _promising(self.context)

    def _candidate_before_confirmation(self) -> SettingsResult | None:
        """Return the candidate before the first confirming run, as long as only the start was run since then.

        A machine that has become faster may make the start look best after the first half of a pair.
        """
        context = self.context
        first = next((place for place, one in enumerate(context.trials) if one.trial.purpose == "confirm"), None)
        if first is None or any(one.trial.settings != context.start for one in context.trials[first:]):
            return None
        best = _promising(replace(context, trials=context.trials[:first]))
        found = None if best is None else context.results.get(best.settings)
        return found if found is not None and context.results.fits(found) else None

    def conclusion(self, skipped: Sequence[SkippedChange] = ()) -> TuningConclusion:
        """Return the result of the search. `skipped` are all other changes, if none of them is worth a trial."""
        requested = self.context.requested
        refused = refused_trial(self.context.trials)
        if refused is not None:
            reason = refused.measurement.sentence or "it used its own settings"
            return TuningConclusion(winner=requested, sentence=f"The training ignores the settings: {reason}")
        winner = self.candidate
        if winner is None:
            return TuningConclusion(winner=requested, sentence=self._nothing_ran())
        if winner.settings == self.context.start:
            late = rejected_for_overhead(winner, self.context.results)
            stays = " ".join(filter(None, [self._start_stays(skipped), late]))
            return self._conclude(winner, stays + self._noise_warning())
        if not self._start_runs:
            return self._conclude(winner, "The start does not run here; these are the fastest settings that run.")
        return self._compare(winner)

    def _start_stays(self, skipped: Sequence[SkippedChange]) -> str:
        if not only_start_ran(self.context.trials):
            return "Nothing is faster than the start beyond the noise; the start is kept."
        reasons = main_reasons(skipped)
        return f"Only the start was tried: {reasons}." if reasons else "Only the start was tried."

    def _compare(self, winner: SettingsResult) -> TuningConclusion:
        test = PairedTest(self.context, winner.settings)
        start = self.context.start_result
        assert start is not None
        start_fits = self.context.results.fits(start)
        if test.interval is None:
            if start_fits:
                return self._conclude(
                    start, "Not confirmed: no comparison with the start was run, so the start is kept."
                )
            return self._conclude(winner, "The start leaves too little memory free; these are the fastest that fit.")
        spread = self._spread(test)
        if test.confirmed:
            sentence = f"Confirmed by alternating runs: {spread}.{self._payback(winner, start)}"
            return self._conclude(winner, sentence, test)
        if not start_fits:
            return self._conclude(winner, f"The start leaves too little memory free: {spread}.", test)
        sentence = (
            f"Not confirmed: in alternating runs the fastest reached {spread}, {self._doubt(test)}; the start is kept."
        )
        late = rejected_for_overhead(start, self.context.results)
        return self._conclude(start, " ".join(filter(None, [sentence, late])) + self._noise_warning())

    def _spread(self, test: PairedTest) -> str:
        """`1.12× the start over the whole job of 400 steps (1.08 … 1.16, 2 pairs), 1.30× in steady state`."""
        ratio, low, high = test.interval or (1.0, 1.0, 1.0)
        count, job = len(test.ratios), self.context.results.job
        over = "" if job is None else f" over the whole job of {job.steps:,} steps"
        steady = "" if job is None or test.steady_ratio is None else f", {test.steady_ratio:.2f}× in steady state"
        pairs = f"{count} {'pair' if count == 1 else 'pairs'}"
        return f"{ratio:.2f}× the start{over} ({low:.2f} … {high:.2f}, {pairs}){steady}"

    def _payback(self, winner: SettingsResult, start: SettingsResult) -> str:
        """After how many steps a winner pays that starts later, and what would pay in a longer job."""
        results = self.context.results
        steps = payback_steps(winner, start, results)
        extra_s = (winner.overhead_s or 0.0) - (start.overhead_s or 0.0)
        pays = f"It pays off after {format_steps(steps)} steps." if steps and extra_s >= MIN_OVERHEAD_S else ""
        return "".join(f" {text}" for text in (pays, rejected_for_overhead(winner, results)) if text)

    def _conclude(self, winner: SettingsResult, sentence: str, test: PairedTest | None = None) -> TuningConclusion:
        ratio, low, high = (test and test.interval) or (None, None, None)
        start = self.context.start_result
        before = None if start is None else median_run(start)
        after = median_run(winner)
        if test is not None and test.pairs:
            before, after = (mean_run(runs) for runs in zip(*test.pairs, strict=True))
        results, job = self.context.results, self.context.results.job
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
            objective="steady" if job is None else "job",
            job_steps=None if job is None else job.steps,
            start_job_s=_job_s(before, start, results),
            best_job_s=_job_s(after, winner, results),
            steady_ratio=None if test is None else test.steady_ratio,
        )

    def _doubt(self, test: PairedTest) -> str:
        """Return why a comparison does not confirm its winner."""
        ratio, low, high = test.interval or (1.0, 1.0, 1.0)
        if test.disturbed:
            return self._disturbance(test)
        if len(test.ratios) < MIN_PAIRS or not test.in_both_orders:
            return f"but {MIN_PAIRS} undisturbed pairs in both orders are needed"
        if high < 1:
            return "slower"
        if low <= 1 or ratio <= 1:
            return "within the noise"
        return f"within the {format_share(test.start_noise, 1)} noise of the start"

    def _disturbance(self, test: PairedTest) -> str:
        """Return what kept the machine busy during the comparison."""
        quiet, share = self.context.space.quiet, test.others_cpu_share
        if quiet.gpu_in_use or share is None:
            return f"on a busy machine ({quiet.busy})"
        before = f"; before, {quiet.busy}" if quiet.busy else ""
        return f"while other programs used {format_share(share)} of the CPU{before}"

    def _noise_warning(self) -> str:
        noise = self.context.results.noise
        if noise < NOISY_MACHINE:
            return ""
        return (
            f" Identical runs differ by up to {format_share(noise)} here, which hides smaller gains: is the "
            "machine busy?"
        )

    def _nothing_ran(self) -> str:
        if not self.context.trials:
            return "Nothing was tried."
        last = self.context.trials[-1].measurement
        if last.outcome == "out-of-memory":
            return "Not even the smallest micro batch fits: use a smaller model, shorter samples or an adapter."
        sentence = last.sentence or f"No trial could be measured; the last one ended as {last.outcome}."
        return f"{sentence} {INTERRUPTED_HINT}" if last.passing else sentence

    @property
    def _start_runs(self) -> bool:
        start = self.context.start_result
        return start is not None and start.measured


def _job_s(run: Measurement | None, result: SettingsResult | None, results: SearchResults) -> float | None:
    """The seconds of the whole job at the throughput of `run`; None if its time is not compared."""
    amount = None if results.job is None else results.job.amount(results.tokens)
    rates = [] if run is None else throughputs([run], results.tokens)
    if amount is None or result is None or not rates:
        return None
    return amount / result.rate_of(rates[0])


def _promising(context: SearchContext) -> SettingsResult | None:
    """Return the best result; if that is the start, what looks clearly faster but is within the noise of single runs.

    On a noisy machine a large gain is within it too. Drift and load that last for a while cancel in pairs.
    """
    results, best = context.results, context.best
    if best is None or best.settings != context.start:
        return best
    fitting = (one for one in results.results if results.fits(one))
    fastest = max(fitting, key=lambda one: one.speed or 0.0)
    return fastest if (fastest.speed or 0.0) > (best.speed or 0.0) * (1 + MIN_PROMISE) else best


def median_run(result: SettingsResult) -> Measurement:
    """Return the measured run of median throughput, or the latest run if none was measured."""
    measured = sorted((run for run in result.runs if run.throughput), key=lambda run: run.throughput or 0.0)
    return measured[len(measured) // 2] if measured else result.last


def mean_run(runs: Sequence[Measurement]) -> Measurement:
    """Return the latest of measured `runs` with the geometric means of their throughputs and their highest peak.

    Of the pairs of a comparison, these are the figures whose quotient is the ratio.
    """

    def mean(rates: Sequence[float | None]) -> float | None:
        known = [rate for rate in rates if rate]
        return statistics.geometric_mean(known) if len(known) == len(runs) else None

    return replace(
        runs[-1],
        tokens_s=mean([run.tokens_s for run in runs]),
        samples_s=mean([run.samples_s for run in runs]),
        peak_bytes=max((run.peak_bytes for run in runs if run.peak_bytes is not None), default=None),
    )


def _trial(settings: Settings, reason: str) -> Trial:
    return Trial(number=0, purpose="confirm", settings=settings, reason=reason)


def only_start_ran(trials: Sequence[CompletedTrial]) -> bool:
    """Return whether every trial ran the start's settings."""
    return all(one.trial.settings == trials[0].trial.settings for one in trials)


def main_reasons(skipped: Sequence[SkippedChange]) -> str:
    """Return the most important reasons, joined to one clause; empty if nothing was skipped."""
    counts: dict[str, int] = {}
    for one in skipped:
        reason = _generalize(one.reason)
        counts[reason] = counts.get(reason, 0) + 1
    # Reasons that rule out other micro batches come first: the micro batch usually gains most.
    first = [_generalize(one.reason) for one in skipped if one.knob == "per_device_train_batch_size"]
    ranked = sorted(counts, key=lambda reason: (reason not in first, -counts[reason]))
    return "; ".join(ranked[:MAX_REASONS])


def _generalize(reason: str) -> str:
    if reason == NOT_REACHED:
        return "other settings cannot be passed to this training (use placeholders or --apply)"
    if any(words in reason for words in NO_GAIN):
        return "other settings could gain less than the noise"
    return reason
