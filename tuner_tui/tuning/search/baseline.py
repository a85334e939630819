"""The first trials: the start, its repeat for the noise, and smaller batches if the start does not fit."""

from __future__ import annotations

from collections.abc import Sequence

from tuner_tui.tuning.search.micro_batch import MicroBatchSizes
from tuner_tui.tuning.search.results import (
    MAX_SLOWDOWN,
    SAFE_MEMORY_SHARE,
    SearchContext,
    SettingsResult,
    same_memory_line,
)
from tuner_tui.tuning.search.space import CHECKPOINTING, MICRO
from tuner_tui.tuning.trial import CompletedTrial, Trial

REPEATS = 2
REPEATS_NOISY = 3
REPEATS_DISTURBED = 5
NOISY_SPREAD = 0.05
"""Relative difference between two runs of the same settings that calls for a third."""


def next_baseline_trial(context: SearchContext) -> Trial | None:
    """Return the next of the first trials; None if they are done, or nothing is left that could run."""
    start, results = context.start, context.results
    result = context.start_result
    if result is None:
        note = "" if start == context.requested else ", micro batch limited to the number of samples"
        return Trial(number=0, purpose="start", settings=start, reason=f"the settings as given{note}")
    repeat_reason = _repeat_reason(context, result)
    if repeat_reason is not None:
        return Trial(number=0, purpose="start", settings=start, reason=repeat_reason)
    if results.best is None:
        return _shrink(context, result)
    # Once another change was tried after a repeat, the noise is known well enough; more repeats would only cost time.
    # A repeat that gave way to a change for lack of time has no "noise" trial, and is proposed again.
    purposes = [completed.trial.purpose for completed in context.trials]
    if "noise" in purposes and purposes[-1] != "noise":
        return None
    anchor = result if result.measured else next(candidate for candidate in results.results if results.fits(candidate))
    rates = anchor.rates
    needed = REPEATS
    if len(rates) > 1 and max(rates) > min(rates) * (1 + NOISY_SPREAD):
        # Where no run is near the fastest, each but that one may have been disturbed, which is not the noise.
        needed = REPEATS_DISTURBED if min(rates) < max(rates) * (1 - MAX_SLOWDOWN) else REPEATS_NOISY
    if len(rates) >= needed:
        return None
    reason = "the current settings again, to measure the noise"
    return Trial(number=0, purpose="noise", settings=anchor.settings, reason=reason)


def refused_trial(trials: Sequence[CompletedTrial]) -> CompletedTrial | None:
    """Return the trial that showed that the training ignores its settings or micro batch, which ends the search."""
    ignored = (completed for completed in trials if completed.measurement.outcome == "not-applied")
    return next(
        (
            completed
            for completed in ignored
            if completed.trial.purpose == "start" or MICRO in fields_not_applied(completed)
        ),
        None,
    )


def fields_not_applied(trial: CompletedTrial) -> tuple[str, ...]:
    """Return the fields that the training ignored; if unknown, the first one that was changed."""
    return trial.measurement.not_applied or trial.trial.changed[:1]


def _repeat_reason(context: SearchContext, start: SettingsResult) -> str | None:
    """Return why a start that failed once is worth a second run, or None."""
    if len(start.runs) > 1 or start.measured:
        return None
    if start.last.passing:
        return "it was stopped externally: the current settings again"
    fits = start.out_of_memory and any(_proves_fit(context, result, start) for result in context.results.results)
    return "a smaller batch suggests that they fit: the current settings again" if fits else None


def _proves_fit(context: SearchContext, smaller: SettingsResult, start: SettingsResult) -> bool:
    """Return whether the start fits easily even if all memory of `smaller` grows with the micro batch."""
    peak, limit_bytes = smaller.peak_bytes, context.results.limit_bytes
    if peak is None or limit_bytes is None or not same_memory_line(smaller.settings, start.settings):
        return False
    grown = start.micro / smaller.micro
    return smaller.measured and peak * grown <= SAFE_MEMORY_SHARE * limit_bytes


def _shrink(context: SearchContext, result: SettingsResult) -> Trial | None:
    """Return a trial of a smaller micro batch with the same effective batch, then one with gradient checkpointing."""
    start, space, results = context.start, context.space, context.results
    failed = not results.exceeds_memory(result)
    if failed and (len(results.results) > 1 or result.last.outcome == "no-step"):
        return None  # a training that is too short, or takes no step, does so with any micro batch
    why = "the current settings failed" if failed else "the current settings need too much memory"
    latest = results.results[-1]
    micro = _smaller_micro_batch(context, latest, failed)
    if micro is not None:
        after = space.with_micro(latest.settings, start, micro)
        held = after.effective_batch() == start.effective_batch()
        reason = f"{why}: a smaller micro batch, effective batch {'kept' if held else 'changed'}"
        return Trial(number=0, purpose="batch", settings=after, reason=reason, changed=(MICRO,))
    change = {CHECKPOINTING: True}
    if failed or latest.settings.gradient_checkpointing or space.refusal(latest.settings, change):
        return None
    after = latest.settings.changed(**change)
    reason = "the smallest micro batch does not fit: gradient checkpointing on"
    return Trial(number=0, purpose="knob", settings=after, reason=reason, changed=(CHECKPOINTING,))


def _smaller_micro_batch(context: SearchContext, latest: SettingsResult, failed: bool) -> int | None:
    micro = latest.micro
    if micro == 1:
        return None
    search = None if failed else MicroBatchSizes(context, latest).search()
    proposal = None if search is None else search.propose()
    if proposal is not None and 1 <= proposal.batch < micro:
        return proposal.batch
    # A start that failed for an unknown reason, or whose memory limit is unknown, leaves nothing to compute a size
    # from.
    sizes = context.space.micro_batches(context.start) or range(1, micro)
    return max(size for size in sizes if size <= micro // 2)
