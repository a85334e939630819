"""Why changes were not tried, grouped and summarised."""

from __future__ import annotations

from collections.abc import Sequence

from tuner_tui.settings.fields import FIELDS
from tuner_tui.tuning.trial import CompletedTrial, SkippedChange

NOT_REACHED = "it does not reach this training"
NO_GAIN = ("within the noise", "it could not gain")
MAX_REASONS = 3


def only_start_ran(tried: Sequence[CompletedTrial]) -> bool:
    """Whether nothing but the start's own settings was run."""
    return all(one.trial.settings == tried[0].trial.settings for one in tried)


def group_by_reason(skipped: Sequence[SkippedChange]) -> dict[str, list[str]]:
    """By reason what was left for it, as in `compile on`; the reason that kept most first."""
    groups: dict[str, list[str]] = {}
    for one in skipped:
        label = FIELDS[one.knob].label if one.knob in FIELDS else one.knob
        groups.setdefault(one.reason, []).append(f"{label} {one.value}")
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


def main_reasons(skipped: Sequence[SkippedChange]) -> str:
    """Why nothing could be tried, in a sentence's part; empty where nothing was skipped."""
    counts: dict[str, int] = {}
    for one in skipped:
        reason = _generalize(one.reason)
        counts[reason] = counts.get(reason, 0) + 1
    # What keeps the micro batch weighs most: it is where most is gained.
    first = [_generalize(one.reason) for one in skipped if one.knob == "per_device_train_batch_size"]
    ranked = sorted(counts, key=lambda reason: (reason not in first, -counts[reason]))
    return "; ".join(ranked[:MAX_REASONS])


def _generalize(reason: str) -> str:
    """A reason without the figures of one knob."""
    if reason == NOT_REACHED:
        return "other settings do not reach this training (placeholders or --apply hand them over)"
    if any(words in reason for words in NO_GAIN):
        return "other settings could gain no more than the noise"
    return reason
