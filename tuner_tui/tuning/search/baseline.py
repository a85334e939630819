"""The first trials: the start, its repeat for the noise, and smaller batches where the start does not fit."""

from __future__ import annotations

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.micro_batch import MicroBatchSizes
from tuner_tui.tuning.search.results import SAFE_MEMORY_SHARE, SearchResults, SettingsResult, same_memory_line
from tuner_tui.tuning.search.space import MICRO, SearchSpace
from tuner_tui.tuning.trial import CompletedTrial, Trial

REPEATS = 2
REPEATS_NOISY = 3
NOISY_SPREAD = 0.05
"""Two runs of one settings this far apart call for a third."""


def next_baseline_trial(
    start: Settings, first: Settings, space: SearchSpace, tried: tuple[CompletedTrial, ...], results: SearchResults
) -> Trial | None:
    """The next of the first trials; None where they are done, or nothing is left that could run.

    `first` is the start, cut to the size of the data.
    """
    result = results.get(first)
    if result is None:
        cut = "" if first == start else ", with no more samples at once than there are"
        return Trial(number=0, purpose="start", settings=first, reason=f"the settings as they are{cut}")
    again = _repeat_reason(result, results)
    if again is not None:
        return Trial(number=0, purpose="start", settings=first, reason=again)
    if results.best is None:
        return _shrink(first, result, space, results)
    purposes = [one.trial.purpose for one in tried]
    if "noise" in purposes and purposes[-1] != "noise":
        return None
    anchor = result if result.measured else next(one for one in results.results if results.trusted(one))
    rates = anchor.rates
    needed = REPEATS_NOISY if len(rates) > 1 and max(rates) > min(rates) * (1 + NOISY_SPREAD) else REPEATS
    if len(rates) >= needed:
        return None
    reason = "the same again: how far do two runs differ?"
    return Trial(number=0, purpose="noise", settings=anchor.settings, reason=reason)


def is_refused(tried: tuple[CompletedTrial, ...]) -> bool:
    """Whether the training does not take the settings that everything else rests on."""
    return refused_trial(tried) is not None


def refused_trial(tried: tuple[CompletedTrial, ...]) -> CompletedTrial | None:
    """The trial that showed that the start's settings or the micro batch do not reach the training."""
    ignored = (one for one in tried if one.measurement.outcome == "not-applied")
    return next((one for one in ignored if one.trial.purpose == "start" or MICRO in fields_not_applied(one)), None)


def fields_not_applied(tried: CompletedTrial) -> tuple[str, ...]:
    """The fields that the training was seen not to take; without a word on it the first of those that were changed."""
    return tried.measurement.not_applied or tried.trial.changed[:1]


def _repeat_reason(start: SettingsResult, results: SearchResults) -> str | None:
    """Why the start, which was run once and did not end well, is worth a second run; None where it is not."""
    if len(start.runs) > 1 or start.measured:
        return None
    if start.last.passing:
        return "it was ended from outside: the start once more"
    fits = start.out_of_memory and any(_proves_fit(one, start, results.limit_bytes) for one in results.results)
    return "by what fewer samples took it should fit: the start once more" if fits else None


def _proves_fit(smaller: SettingsResult, start: SettingsResult, limit_bytes: float | None) -> bool:
    """Whether the start stays far below the limit even if all memory grows with the micro batch."""
    peak = smaller.peak_bytes
    if peak is None or limit_bytes is None or not same_memory_line(smaller.settings, start.settings):
        return False
    grown = start.settings.per_device_train_batch_size / smaller.settings.per_device_train_batch_size
    return smaller.measured and peak * grown <= SAFE_MEMORY_SHARE * limit_bytes


def _shrink(first: Settings, result: SettingsResult, space: SearchSpace, results: SearchResults) -> Trial | None:
    """Smaller micro batches, the effective batch held; where not even one sample fits, with checkpointing on."""
    failed = not results.over(result)
    if failed and (len(results.results) > 1 or result.last.outcome == "no-step"):
        return None  # a training that is too short, or takes no step, does so with any micro batch
    why = "the start failed" if failed else "the start needs more memory than there is"
    now = results.results[-1]
    micro = _smaller_micro_batch(first, now, space, results, failed)
    if micro is not None:
        after = space.with_micro(now.settings, first, micro)
        held = after.effective_batch() == first.effective_batch()
        reason = f"{why}: a smaller micro batch, effective batch {'held' if held else 'changed'}"
        return Trial(number=0, purpose="batch", settings=after, reason=reason, changed=(MICRO,))
    change = {"gradient_checkpointing": True}
    if failed or now.settings.gradient_checkpointing or space.refusal(now.settings, change):
        return None
    after = now.settings.changed(**change)
    reason = "the smallest micro batch does not fit: activations recomputed instead of kept"
    return Trial(number=0, purpose="knob", settings=after, reason=reason, changed=("gradient_checkpointing",))


def _smaller_micro_batch(
    first: Settings, now: SettingsResult, space: SearchSpace, results: SearchResults, failed: bool
) -> int | None:
    """The next size on the way down, None below one sample."""
    micro = now.settings.per_device_train_batch_size
    if micro == 1:
        return None
    search = None if failed else MicroBatchSizes(first, now, results, space).search()
    proposal = None if search is None else search.propose()
    if proposal is not None and 1 <= proposal.batch < micro:
        return proposal.batch
    sizes = space.micro_batches(first) or range(1, micro)
    return max(size for size in sizes if size <= micro // 2)
