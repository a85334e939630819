"""A tuning as rows and text: trials, progress, result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import UNKNOWN, format_duration, format_share, format_short_duration
from tuner_tui.settings.model import FIELDS, Settings, format_value
from tuner_tui.tuning.search.results import SearchResults
from tuner_tui.tuning.trial import CompletedTrial, Measurement, Trial, TuningConclusion
from tuner_tui.tuning.trial_log import TrialStarted, TuningView
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import BAD, GOOD, WARN, Row, Style, TextSpan, column_widths, line, table_line

OUTCOMES: Mapping[str, str] = {
    "out-of-memory": "out of memory",
    "failed": "failed",
    "no-step": "made no step",
    "not-applied": "not applied",
    "other-data": "other data",
    "aborted": "aborted",
}


class TuningSummary(NamedTuple):
    """Results of a tuning's trials: initial settings and their throughput, and the best settings."""

    results: SearchResults
    given: Settings | None
    start: float | None
    best: Settings | None

    @classmethod
    def of(cls, view: TuningView) -> TuningSummary:
        """Summarise the trials so far."""
        results = SearchResults.of(view.tried, view.limit_bytes, view.whole_job)
        given = view.tried[0].trial.settings if view.tried else None
        first = results.get(given) if given is not None else None
        fastest = None if results.best is None else results.best.settings
        best = fastest if view.verdict is None else view.verdict.winner
        return cls(results, given, None if first is None else first.throughput, best)

    def rate(self, measurement: Measurement) -> float | None:
        """Return the throughput that is compared: tokens/s if every trial counted tokens, else samples/s."""
        return measurement.tokens_s if self.results.tokens else measurement.samples_s

    @property
    def unit(self) -> str:
        """Unit of the throughput that is compared."""
        return "tokens/s" if self.results.tokens else "samples/s"

    def ratio(self, measurement: Measurement) -> float | None:
        """Return the throughput relative to the initial settings; None if either is unknown."""
        rate = self.rate(measurement)
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
    if not trial.changed:
        label = "as given" if given in (None, trial.settings) else "the winner"
        return label if trial.purpose == "start" else f"{label}, again"
    return ", ".join(
        f"{FIELDS[name].label} {format_value(name, getattr(trial.settings, name)) or 'none'}" for name in trial.changed
    )


def format_trial_outcome(completed: CompletedTrial) -> str:
    """Return why a trial has no result: `out of memory`, or the sentence of its measurement."""
    measurement = completed.measurement
    if measurement.outcome == "not-applied" and measurement.not_applied:
        return f"not applied: {', '.join(measurement.not_applied)}"
    if measurement.outcome in ("failed", "no-step", "other-data") and measurement.sentence:
        return measurement.sentence
    return OUTCOMES.get(measurement.outcome, "")


def format_time_left(view: TuningView) -> str:
    """Return `6 min … 9 min left`, or an empty text if unknown."""
    if not view.running or view.running[0].left_high_s is None:
        return ""
    low, high = map(format_short_duration, (view.running[0].left_low_s, view.running[0].left_high_s))
    return f"{high} left" if low in (high, UNKNOWN) else f"{low} … {high} left"


def tuning_status(view: TuningView) -> str:
    """Return the short status for other screens: `t003 tunes, trial 8`, `t003 finished`."""
    if view.status != "running":
        return f"{view.id} {view.status}"
    return f"{view.id} tuning" + (f", trial {view.running[0].trial.number}" if view.running else "")


def tuning_sentence(view: TuningView) -> str:
    """Return what is tuned, its progress, and the key that shows it."""
    trial = f"trial {view.running[0].trial.number}" if view.running else ""
    how_far = ", ".join(filter(None, (trial, format_time_left(view))))
    return f"{view.id} is tuning {view.title}{f' ({how_far})' if how_far else ''}. o shows it."


def is_start_best(view: TuningView) -> bool:
    """True if the initial settings won: there is nothing to apply."""
    return view.verdict is not None and bool(view.tried) and view.verdict.winner == view.tried[0].trial.settings


def can_resume(view: TuningView) -> bool:
    """True if the tuning can be resumed: it ended early or ran out of time."""
    return view.status in ("aborted", "killed", "failed") or (view.status == "finished" and bool(view.trouble))


def trial_result(view: TuningView, completed: CompletedTrial) -> str:
    """Return one trial as a line: `trial 6: precision bf16: 52.6k tokens/s ± 1 %, ×2.46, 44.0 GiB, 40 steps, 41 s`."""
    summary, measurement = TuningSummary.of(view), completed.measurement
    result = format_trial_outcome(completed) or measurement.outcome
    if measurement.outcome == "measured":
        spread = "" if measurement.spread is None else f" ± {format_share(measurement.spread, digits=1)}"
        result = ", ".join(
            [
                f"{f.significant(summary.rate(measurement))} {summary.unit}{spread}",
                format_ratio(summary.ratio(measurement)),
                *([] if measurement.peak_bytes is None else [f"{f.gib(measurement.peak_bytes)} GiB"]),
                f"{measurement.steps} steps",
            ]
        )
    changes = format_changes(completed.trial, summary.given)
    return f"trial {completed.trial.number}: {changes}: {result}, {format_short_duration(measurement.seconds)}"


def result_rows(view: TuningView, width: int) -> list[Row]:
    """Return the conclusion of a tuning that has ended, or only its trouble: without the keys of the screen."""
    rows = [] if view.verdict is None else _verdict_rows(view.verdict, view.preset, True, width)
    if view.verdict is not None and view.tried:
        start = view.tried[0].trial.settings
        changed = [name for name in FIELDS if getattr(start, name) != getattr(view.verdict.winner, name)]
        values = (
            f"{_field_label(name)} {_value(start, name)} → {_value(view.verdict.winner, name)}" for name in changed
        )
        rows += _labelled_rows("changed", ", ".join(values), width) if changed else []
    return rows + (_labelled_rows("note", view.trouble, width) if view.trouble else [])


def _value(settings: Settings, name: str) -> str:
    return format_value(name, getattr(settings, name)) or UNKNOWN


LABEL = 8
STOPPED_SENTENCES: Mapping[str, tuple[str, Style, str]] = {
    "aborted": (WARN, "warn", "Stopped; all measurements are kept. R resumes it."),
    "killed": (WARN, "warn", "The tuner process died. R resumes it."),
    "failed": (BAD, "bad", "It failed."),
}


def tuning_rows(view: TuningView | None, now_s: float | None, width: int) -> list[Row]:
    """Return the rows at the top of the tune screen; `now_s` is in seconds since the epoch."""
    if view is None:
        return [Row(line(TextSpan("Reading the tuning.", "dim")))]
    rows = _ended_rows(view, width) if view.status != "running" else _running_rows(view, now_s, width)
    busy = f"{view.busy}: nothing is confirmed or saved meanwhile" if view.busy else ""
    return (
        rows
        + (_labelled_rows("busy", busy, width, "warn") if busy and view.verdict is None else [])
        + _best_rows(view, width)
        + (_verdict_rows(view.verdict, view.preset, is_start_best(view), width) if view.verdict else [])
    )


def _running_rows(view: TuningView, now_s: float | None, width: int) -> list[Row]:
    if not view.running:
        return [Row(line(TextSpan("Between trials. ", "strong")))]
    first, left = view.running[0], format_time_left(view)
    trial = first.trial
    given = view.tried[0].trial.settings if view.tried else None
    for_how_long = "" if now_s is None else f" · for {format_duration(now_s - first.t)}"
    if now_s is not None and first.expected_s is not None:
        for_how_long += f" of about {format_duration(first.expected_s)}"
    head = line(
        TextSpan(f"▸ trial {trial.number}", "strong"),
        f" · {format_changes(trial, given)}{for_how_long}",
        f" · {left}" if left else "",
    )
    cards = ", ".join(
        f"{running.trial.number}{_on_card(running.trial)}" for running in view.running if running.trial.card
    )
    at_once = _labelled_rows("trials", cards, width) if cards else []
    return [Row(head), *_labelled_rows("why", trial.reason, width), *at_once]


def _on_card(trial: Trial) -> str:
    """Return ` on GPU …4f2a9c`, the end of its UUID, or ` on node7` for a parallel trial; else an empty text."""
    if trial.card is None:
        return ""
    return f" on GPU …{trial.card[-6:]}" if trial.card.startswith("GPU-") else f" on {trial.card}"


def _ended_rows(view: TuningView, width: int) -> list[Row]:
    if view.status == "finished":
        return _labelled_rows("note", view.trouble, width, "warn") if view.trouble else []
    mark, style, words = STOPPED_SENTENCES[view.status]
    rows = [Row(line(TextSpan(f"{mark} {words}", style)))]
    return rows + (_labelled_rows("trouble", view.trouble, width, style) if view.trouble else [])


def _best_rows(view: TuningView, width: int) -> list[Row]:
    """Return the best trial so far, until there is a conclusion."""
    standing = TuningSummary.of(view)
    best = standing.results.best
    if view.verdict is not None or best is None or standing.start is None or best.throughput is None:
        return []
    first = next(completed.trial for completed in view.tried if completed.trial.settings == best.settings)
    words = format_changes(first, standing.given)
    ratio = format_ratio(best.throughput / standing.start)
    figures = f"{ratio} of the start · {f.significant(best.throughput)} {standing.unit}"
    return _labelled_rows("best", f"{figures} · {f.gib(best.peak_bytes)} GiB · trial {first.number}: {words}", width)


def _verdict_rows(verdict: TuningConclusion, preset: str | None, stays: bool, width: int) -> list[Row]:
    """Return the speedup with its range, the conclusion, and how to apply it."""
    rows: list[Row] = []
    if verdict.ratio is not None:
        spread = ""
        if verdict.ratio_low is not None and verdict.ratio_high is not None:
            spread = f" ({format_ratio(verdict.ratio_low)} … {format_ratio(verdict.ratio_high)})"
        rows.append(
            Row(
                line(
                    TextSpan(f"{GOOD} {format_ratio(verdict.ratio)}", "good"),
                    f"{spread} of the start's {_compared(verdict)}",
                )
            )
        )
    rows += [Row(line(text)) for text in wrap_text(verdict.sentence, max(20, width))]
    if verdict.learning_rate_note:
        rows += _labelled_rows("LR", verdict.learning_rate_note, width)
    if preset is not None:
        rows += _labelled_rows("saved", preset, width)
    if stays:
        return rows
    return [*rows, *_labelled_rows("next", "a shows what it would change and applies it", width)]


def _compared(verdict: TuningConclusion) -> str:
    """`throughput`, or `speed over all 400 steps: 41 s → 35 s`."""
    return f"speed over all {verdict.job_steps:,} steps: {verdict.job_times}" if verdict.job_times else "throughput"


def skipped_rows(view: TuningView | None, width: int) -> list[Row]:
    """Return the changes that were not tried, with reasons."""
    if view is None or not view.skipped:
        return [Row(line(TextSpan("Nothing was skipped." if view and view.verdict else "Nothing yet.", "dim")))]
    rows: list[Row] = []
    for change in view.skipped:
        rows.append(Row(line(_field_label(change.knob), " ", change.value)))
        rows += [Row(line(TextSpan(f"  {text}", "dim"))) for text in wrap_text(change.reason, max(12, width - 2))]
    return rows


def _field_label(knob: str) -> str:
    return FIELDS[knob].label if knob in FIELDS else knob


def _labelled_rows(label: str, text: str, width: int, style: Style = "") -> list[Row]:
    texts = wrap_text(text, max(20, width - LABEL)) or [""]
    return [
        Row(line(TextSpan(f"{label if at == 0 else '':<{LABEL}}", "dim"), TextSpan(part, style)))
        for at, part in enumerate(texts)
    ]


COLUMN_SIDES = "rllrrrrl"
CHANGED, OUTCOME = 2, 7
QUIET_COLUMNS = (0, 1, 6)
ALL_COLUMNS_FROM = 88
OPTIONAL_COLUMNS = (1, 6)
"""Columns omitted from a narrow table."""

TrialTexts = tuple[tuple[str, ...], Style]
"""The texts of one row and the style of its outcome."""


def trial_rows(view: TuningView | None, width: int) -> list[Row]:
    """Return a heading and a row per trial, newest last, then the running trial."""
    if view is None:
        return [Row(line(TextSpan("Reading the tuning.", "dim")))]
    standing = TuningSummary.of(view)
    trials = [_finished_trial(view, standing, completed) for completed in view.tried]
    if view.status == "running":
        trials += [_running_trial(running, standing) for running in view.running]
    if not trials:
        return [Row(line(TextSpan("No trial yet.", "dim")))]
    heads = ("#", "for", "changed", standing.unit, "×start", "peak GiB", "at most", "")
    shown = [at for at in range(len(heads)) if at not in OPTIONAL_COLUMNS or width >= ALL_COLUMNS_FROM]
    table = [[texts[at] for at in shown] for texts in (heads, *(texts for texts, _ in trials))]
    columns = column_widths(table, [width] * len(shown), width)
    sides = "".join(COLUMN_SIDES[at] for at in shown)
    rows = [Row(table_line(table[0], columns, ["dim" for _ in shown], sides))]
    for texts, (_, style) in zip(table[1:], trials, strict=True):
        styles: dict[int, Style] = {**dict.fromkeys(QUIET_COLUMNS, "dim"), OUTCOME: style}
        styles |= {CHANGED: "strong"} if style == "good" else {}
        rows.append(Row(table_line(texts, columns, [styles.get(at, "") for at in shown], sides)))
    return rows


def _finished_trial(view: TuningView, standing: TuningSummary, completed: CompletedTrial) -> TrialTexts:
    trial, measurement = completed.trial, completed.measurement
    outcome, style = _trial_outcome(view, standing, completed)
    figures = (
        f.significant(standing.rate(measurement)),
        format_ratio(standing.ratio(measurement)),
        f.gib(measurement.peak_bytes),
        format_bound(trial.bound),
    )
    changes = format_changes(trial, standing.given)
    return (str(trial.number), trial.purpose, changes, *figures, outcome), style


def _trial_outcome(view: TuningView, standing: TuningSummary, completed: CompletedTrial) -> tuple[str, Style]:
    measurement = completed.measurement
    if measurement.outcome == "out-of-memory":
        return f"{BAD} {format_trial_outcome(completed)}", "bad"
    if measurement.outcome == "aborted":
        return format_trial_outcome(completed), "dim"
    if measurement.outcome != "measured":
        return f"{WARN} {format_trial_outcome(completed)}", "warn"
    if (
        view.limit_bytes is not None
        and measurement.peak_bytes is not None
        and measurement.peak_bytes > view.limit_bytes
    ):
        return f"{WARN} too little memory left", "warn"
    if completed.trial.settings == standing.best:
        final = "the start is kept" if is_start_best(view) else "winner"
        return f"{GOOD} {final if view.status == 'finished' else 'best so far'}", "good"
    return "", ""


def _running_trial(started: TrialStarted, standing: TuningSummary) -> TrialTexts:
    trial = started.trial
    figures = (UNKNOWN, UNKNOWN, UNKNOWN, format_bound(trial.bound))
    outcome = f"▸ in {started.run}{_on_card(trial)}"
    changes = format_changes(trial, standing.given)
    return (str(trial.number), trial.purpose, changes, *figures, outcome), "strong"
