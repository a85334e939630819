"""Why changes were not tried, grouped and summarised."""

from __future__ import annotations

from collections.abc import Sequence

from tuner_tui.settings.model import FIELDS
from tuner_tui.tuning.trial import CompletedTrial, SkippedChange

NOT_REACHED = "cannot be passed to this training"
NO_GAIN = ("within the noise", "no gain possible")
MAX_REASONS = 3


def only_start_ran(trials: Sequence[CompletedTrial]) -> bool:
    """Return whether every trial ran the start's settings."""
    return all(one.trial.settings == trials[0].trial.settings for one in trials)


def group_by_reason(skipped: Sequence[SkippedChange]) -> dict[str, list[str]]:
    """Return the skipped changes (such as `compile on`) by reason, the most frequent reason first."""
    groups: dict[str, list[str]] = {}
    for one in skipped:
        label = FIELDS[one.knob].label if one.knob in FIELDS else one.knob
        groups.setdefault(one.reason, []).append(f"{label} {one.value}")
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


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
