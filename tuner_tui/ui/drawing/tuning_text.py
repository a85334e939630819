"""Texts about a tuning and its trials: changes, ratios, outcomes, time left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner_tui.core.units import UNKNOWN, format_share, format_short_duration

if TYPE_CHECKING:
    from tuner_tui.settings.model import Settings
    from tuner_tui.tuning.process.tuning_reader import TuningView
    from tuner_tui.tuning.search.results import SearchResults
    from tuner_tui.tuning.trial import CompletedTrial, Measurement, Trial

PURPOSES: Mapping[str, str] = {
    "start": "start", "noise": "noise", "batch": "batch", "knob": "knob", "confirm": "confirm",
}  # fmt: skip
OUTCOMES: Mapping[str, str] = {
    "out-of-memory": "out of memory",
    "failed": "failed",
    "no-step": "made no step",
    "not-applied": "not applied",
    "aborted": "aborted",
}


@dataclass(frozen=True, slots=True)
class TuningSummary:
    """Results of a tuning's trials: initial settings and their throughput, and the best settings."""

    results: SearchResults
    given: Settings | None
    start: float | None
    best: Settings | None

    @classmethod
    def of(cls, view: TuningView) -> TuningSummary:
        """Summarise the trials so far."""
        from tuner_tui.tuning.search.results import SearchResults

        results = SearchResults.of(view.tried, view.limit_bytes, view.whole_job)
        given = view.tried[0].trial.settings if view.tried else None
        first = results.get(given) if given is not None else None
        fastest = None if results.best is None else results.best.settings
        best = fastest if view.verdict is None else view.verdict.winner
        return cls(results, given, None if first is None else first.throughput, best)

    def rate(self, found: Measurement) -> float | None:
        """Return the throughput that is compared: tokens/s if every trial counted tokens, else samples/s."""
        return found.tokens_s if self.results.tokens else found.samples_s

    @property
    def unit(self) -> str:
        """Unit of the throughput that is compared."""
        return "tokens/s" if self.results.tokens else "samples/s"

    def ratio(self, found: Measurement) -> float | None:
        """Return the throughput relative to the initial settings; None if either is unknown."""
        rate = self.rate(found)
        return None if rate is None or not self.start else rate / self.start


def format_ratio(ratio: float | None) -> str:
    """Return `×1.41`."""
    return UNKNOWN if ratio is None else f"×{ratio:.2f}"


def format_bound(bound: float | None) -> str:
    """Return the largest possible gain: `+12 %`, or a factor from twice as fast on."""
    if bound is None:
        return UNKNOWN
    return format_share(bound, signed=True) if bound < 1 else f"×{1 + bound:.1f}"


def format_changes(trial: Trial, given: Settings | None) -> str:
    """Return `micro batch 32, compile on`; for a repetition, which settings are repeated."""
    from tuner_tui.settings.fields import FIELDS, format_value

    if not trial.changed:
        what = "as given" if given in (None, trial.settings) else "the winner"
        return what if trial.purpose == "start" else f"{what}, again"
    return ", ".join(
        f"{FIELDS[name].label} {format_value(name, getattr(trial.settings, name)) or 'none'}" for name in trial.changed
    )


def format_trial_outcome(one: CompletedTrial) -> str:
    """Return why a trial has no result: `out of memory`, or the sentence of its measurement."""
    found = one.measurement
    if found.outcome == "not-applied" and found.not_applied:
        return f"not applied: {', '.join(found.not_applied)}"
    if found.outcome in ("failed", "no-step") and found.sentence:
        return found.sentence
    return OUTCOMES.get(found.outcome, "")


def format_time_left(view: TuningView) -> str:
    """Return `6 min … 9 min left`, or an empty text if unknown."""
    low, high = format_short_duration(view.left_low_s), format_short_duration(view.left_high_s)
    if view.left_high_s is None:
        return ""
    return f"{high} left" if low in (high, UNKNOWN) else f"{low} … {high} left"


def tuning_status(view: TuningView) -> str:
    """Return the short status for other screens: `t003 tunes, trial 8`, `t003 finished`."""
    if view.status != "running":
        return f"{view.id} {view.status}"
    return f"{view.id} tuning" + (f", trial {view.current.number}" if view.current else "")


def tuning_sentence(view: TuningView) -> str:
    """Return what is tuned, its progress, and the key that shows it."""
    trial = f"trial {view.current.number}" if view.current else ""
    how_far = ", ".join(filter(None, (trial, format_time_left(view))))
    return f"{view.id} is tuning {view.title}{f' ({how_far})' if how_far else ''}. o shows it."


def is_start_best(view: TuningView) -> bool:
    """True if the initial settings won: there is nothing to apply."""
    return view.verdict is not None and bool(view.tried) and view.verdict.winner == view.tried[0].trial.settings


def can_resume(view: TuningView) -> bool:
    """True if the tuning can be resumed: it ended early or ran out of time."""
    return view.status in ("aborted", "killed", "failed") or (view.status == "finished" and bool(view.trouble))
