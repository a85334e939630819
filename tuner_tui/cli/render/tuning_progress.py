"""A tuning as lines of text: one when a trial starts, one when it ends, and the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner_tui.core.units import GIB, format_share, format_short_duration
from tuner_tui.settings.fields import FIELDS, format_value
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.process.trial_log import LogEntry, TrialCompleted, TrialStarted, TuningEnded, TuningStarted
from tuner_tui.tuning.search.skip_reasons import group_by_reason
from tuner_tui.tuning.trial import (
    Measurement,
    SkippedChange,
    Trial,
    TuningConclusion,
    format_peak_memory,
    format_throughput,
)

KNOBS_SHOWN = 4
REASONS_SHOWN = 8


class TuningLines:
    """Turns entries into lines. Knows the start, so that what differs from it is said."""

    def __init__(self) -> None:
        self._start: Settings | None = None
        self._said = ""
        self._skipped: tuple[SkippedChange, ...] = ()

    def of(self, entry: LogEntry) -> Iterator[str]:
        """The lines that an entry is worth."""
        match entry:
            case TuningStarted():
                yield from self._begun(entry)
            case TrialStarted():
                left = "" if entry.left_high_s is None else f"  (about {_left(entry)} left)"
                yield f"trial {entry.trial.number:<3} {self._what(entry.trial)}: {entry.trial.reason}{left}"
            case TrialCompleted():
                if self._start is None:
                    self._start = entry.tried.trial.settings
                self._skipped = entry.skipped
                measured = entry.tried.measurement
                yield f"          {figures(measured)}"
                if measured.outcome == "measured" and measured.sentence not in ("", self._said):
                    self._said = measured.sentence
                    yield f"          ({measured.sentence})"
            case TuningEnded():
                yield from self._ended(entry)

    def _begun(self, entry: TuningStarted) -> Iterator[str]:
        if entry.limit_bytes is not None and entry.capacity_bytes is not None:
            limit, capacity = entry.limit_bytes / GIB, entry.capacity_bytes / GIB
            yield f"memory    {limit:.2f} of {capacity:.2f} GiB may be taken"

    def _what(self, trial: Trial) -> str:
        changes = () if self._start is None else differences(self._start, trial.settings)
        return f"{trial.purpose:<8}" + (" " + ", ".join(changes[:KNOBS_SHOWN]) if changes else "")

    def _ended(self, entry: TuningEnded) -> Iterator[str]:
        if entry.verdict is not None:
            yield f"verdict   {entry.verdict.sentence}"
            yield from self._compared(entry.verdict)
            yield from skipped_lines(self._skipped)
        if entry.sentence:
            yield f"{entry.status:<9} {entry.sentence}"
        if entry.preset is not None:
            yield f"saved     {entry.preset}"

    def _compared(self, verdict: TuningConclusion) -> Iterator[str]:
        for label, measured in (("start", verdict.start), ("best", verdict.best)):
            if measured is not None and measured.throughput is not None:
                yield f"{label:<9} {figures(measured)}"
        if self._start is not None and (changes := differences(self._start, verdict.winner)):
            yield f"changed   {', '.join(changes)}"
        if verdict.learning_rate_note:
            yield f"rate      {verdict.learning_rate_note}"


def skipped_lines(skipped: Sequence[SkippedChange]) -> Iterator[str]:
    """What was not tried and why, a line a reason; the reasons that kept least are counted where there are many."""
    groups = list(group_by_reason(skipped).items())
    shown = groups if len(groups) <= REASONS_SHOWN else groups[: REASONS_SHOWN - 1]
    for reason, labels in shown:
        more = f" and {len(labels) - KNOBS_SHOWN} more" if len(labels) > KNOBS_SHOWN else ""
        yield f"not tried {', '.join(labels[:KNOBS_SHOWN])}{more}: {reason}"
    if len(groups) > len(shown):
        yield f"not tried {sum(len(labels) for _, labels in groups[len(shown) :])} more, for other reasons (--json)"


def differences(start: Settings, settings: Settings) -> list[str]:
    """`workers 0 → 2` for every setting in which the two differ."""
    names = [name for name in Settings.model_fields if getattr(settings, name) != getattr(start, name)]
    return [f"{FIELDS[name].label} {_word(start, name)} → {_word(settings, name)}" for name in names]


def figures(measured: Measurement) -> str:
    """`12,345 tokens/s ± 1.8 %, 1.72 GiB, 26 steps, 13 s`; else what happened."""
    if measured.outcome != "measured" or measured.throughput is None:
        return f"{measured.outcome}: {measured.sentence} ({format_short_duration(measured.seconds)})"
    spread = "" if measured.spread is None else f" ± {format_share(measured.spread, digits=1)}"
    parts = (format_throughput(measured) + spread, format_peak_memory(measured), f"{measured.steps} steps")
    return ", ".join(filter(None, (*parts, format_short_duration(measured.seconds))))


def _word(settings: Settings, name: str) -> str:
    return format_value(name, getattr(settings, name)) or "–"


def _left(entry: TrialStarted) -> str:
    low, high = entry.left_low_s or 0.0, entry.left_high_s or 0.0
    low_text, high_text = format_short_duration(low), format_short_duration(high)
    return high_text if low_text == high_text else f"{low_text} to {high_text}"
