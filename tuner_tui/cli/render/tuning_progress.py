"""A tuning as lines of text: one when a trial starts, one when it ends, and the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner_tui.core.units import GIB, format_duration, format_share, format_short_duration
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

BUSY_NOTE = "trials continue, but nothing is confirmed or saved meanwhile."
KNOBS_SHOWN = 4
REASONS_SHOWN = 8


class TuningLines:
    """Turns log entries into lines; remembers the initial settings, to name what differs from them."""

    def __init__(self) -> None:
        self._initial: Settings | None = None
        self._last_sentence = ""
        self._skipped: tuple[SkippedChange, ...] = ()

    def lines(self, entry: LogEntry) -> Iterator[str]:
        """Yield the lines of an entry."""
        match entry:
            case TuningStarted():
                yield from self._memory_lines(entry)
                if entry.busy:
                    yield f"busy      {entry.busy[0].upper()}{entry.busy[1:]}: {BUSY_NOTE}"
            case TrialStarted():
                takes = "" if entry.expected_s is None else f"takes about {format_short_duration(entry.expected_s)}"
                total = "" if entry.left_high_s is None else f"about {_time_left(entry)} left"
                left = f"  ({', '.join(filter(None, (takes, total)))})" if takes or total else ""
                yield f"trial {entry.trial.number:<3} {self._describe(entry.trial)}: {entry.trial.reason}{left}"
            case TrialCompleted():
                if self._initial is None:
                    self._initial = entry.tried.trial.settings
                self._skipped = entry.skipped
                measured = entry.tried.measurement
                yield f"          {format_measurement(measured)}"
                if measured.outcome == "measured" and measured.sentence not in ("", self._last_sentence):
                    self._last_sentence = measured.sentence
                    yield f"          ({measured.sentence})"
            case TuningEnded():
                yield from self._end_lines(entry)

    def _memory_lines(self, entry: TuningStarted) -> Iterator[str]:
        if entry.limit_bytes is not None and entry.capacity_bytes is not None:
            limit, capacity = entry.limit_bytes / GIB, entry.capacity_bytes / GIB
            yield f"memory    {limit:.2f} of {capacity:.2f} GiB may be used"

    def _describe(self, trial: Trial) -> str:
        changes = () if self._initial is None else differences(self._initial, trial.settings)
        return f"{trial.purpose:<8}" + (" " + ", ".join(changes[:KNOBS_SHOWN]) if changes else "")

    def _end_lines(self, entry: TuningEnded) -> Iterator[str]:
        if entry.verdict is not None:
            yield f"verdict   {entry.verdict.sentence}"
            yield from self._result_lines(entry.verdict)
            yield from skipped_lines(self._skipped)
        if entry.sentence:
            yield f"{entry.status:<9} {entry.sentence}"
        if entry.preset is not None:
            yield f"saved     {entry.preset}"

    def _result_lines(self, verdict: TuningConclusion) -> Iterator[str]:
        for label, measured in (("start", verdict.start), ("best", verdict.best)):
            if measured is not None and measured.throughput is not None:
                yield f"{label:<9} {format_measurement(measured)}"
        changed = verdict.start_job_s != verdict.best_job_s
        if changed and verdict.start_job_s and verdict.best_job_s and verdict.job_steps is not None:
            start, best = format_duration(verdict.start_job_s), format_duration(verdict.best_job_s)
            yield f"whole job {verdict.job_steps:,} steps: {start} → {best}, start-up included"
        if self._initial is not None and (changes := differences(self._initial, verdict.winner)):
            yield f"changed   {', '.join(changes)}"
        if verdict.learning_rate_note:
            yield f"rate      {verdict.learning_rate_note}"


def skipped_lines(skipped: Sequence[SkippedChange]) -> Iterator[str]:
    """Yield skipped changes grouped by reason; reasons beyond the largest groups are only counted."""
    groups = list(group_by_reason(skipped).items())
    shown = groups if len(groups) <= REASONS_SHOWN else groups[: REASONS_SHOWN - 1]
    for reason, labels in shown:
        more = f" and {len(labels) - KNOBS_SHOWN} more" if len(labels) > KNOBS_SHOWN else ""
        yield f"not tried {', '.join(labels[:KNOBS_SHOWN])}{more}: {reason}"
    if len(groups) > len(shown):
        yield f"not tried {sum(len(labels) for _, labels in groups[len(shown) :])} more, for other reasons (--json)"


def differences(start: Settings, settings: Settings) -> list[str]:
    """Return `workers 0 → 2` for every setting in which the two differ."""
    names = [name for name in Settings.model_fields if getattr(settings, name) != getattr(start, name)]
    return [f"{FIELDS[name].label} {_format_value(start, name)} → {_format_value(settings, name)}" for name in names]


def format_measurement(measured: Measurement) -> str:
    """Return `12,345 tokens/s ± 1.8 %, 1.72 GiB, 26 steps, 13 s`, or the outcome of a trial without a result."""
    if measured.outcome != "measured" or measured.throughput is None:
        return f"{measured.outcome}: {measured.sentence} ({format_short_duration(measured.seconds)})"
    spread = "" if measured.spread is None else f" ± {format_share(measured.spread, digits=1)}"
    parts = (format_throughput(measured) + spread, format_peak_memory(measured), f"{measured.steps} steps")
    return ", ".join(filter(None, (*parts, format_short_duration(measured.seconds))))


def _format_value(settings: Settings, name: str) -> str:
    return format_value(name, getattr(settings, name)) or "–"


def _time_left(entry: TrialStarted) -> str:
    low, high = (format_short_duration(seconds or 0.0) for seconds in (entry.left_low_s, entry.left_high_s))
    return high if low == high else f"{low} to {high}"
