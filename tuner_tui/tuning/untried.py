"""What was not tried, in few words: alike reasons together, the most telling first."""

from __future__ import annotations

from collections.abc import Sequence

from tuner_tui.settings.fields import FIELDS
from tuner_tui.tuning.trial import Skipped, Tried

UNREACHED = "it does not reach this training"
NO_GAIN = ("within the noise", "it could not gain")
MOST_REASONS = 3


def only_start(tried: Sequence[Tried]) -> bool:
    """Whether nothing but the start's own settings was run."""
    return all(one.trial.settings == tried[0].trial.settings for one in tried)


def grouped(skipped: Sequence[Skipped]) -> dict[str, list[str]]:
    """By reason what was left for it, as in `compile on`; the reason that kept most first."""
    groups: dict[str, list[str]] = {}
    for one in skipped:
        label = FIELDS[one.knob].label if one.knob in FIELDS else one.knob
        groups.setdefault(one.reason, []).append(f"{label} {one.value}")
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


def chief_reasons(skipped: Sequence[Skipped]) -> str:
    """Why nothing could be tried, in a sentence's part; empty where nothing was skipped."""
    counts: dict[str, int] = {}
    for one in skipped:
        reason = _in_general(one.reason)
        counts[reason] = counts.get(reason, 0) + 1
    # What keeps the micro batch weighs most: it is where most is gained.
    first = [_in_general(one.reason) for one in skipped if one.knob == "per_device_train_batch_size"]
    ranked = sorted(counts, key=lambda reason: (reason not in first, -counts[reason]))
    return "; ".join(ranked[:MOST_REASONS])


def _in_general(reason: str) -> str:
    """A reason without the figures of one knob."""
    if reason == UNREACHED:
        return "other settings do not reach this training (placeholders or --apply hand them over)"
    if any(words in reason for words in NO_GAIN):
        return "other settings could gain no more than the noise"
    return reason
