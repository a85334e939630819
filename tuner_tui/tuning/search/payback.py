"""After how many optimizer steps a change pays that takes longer to start, such as compiling."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tuner_tui.settings.fields import FIELDS, format_value
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.results import SearchResults, SettingsResult
from tuner_tui.tuning.search.space import ACCUMULATION, MICRO

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
