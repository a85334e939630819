"""How a tuning stands: the trial under way with its bound and reason, or what came of it all; and what it left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner_tui.core.text import wrap_text
from tuner_tui.ui import format as f
from tuner_tui.ui.drawing.cells import Row, Run, Style, line
from tuner_tui.ui.drawing.marks import BAD, GOOD, WARN
from tuner_tui.ui.drawing.tuning_words import Standing, changed_words, left_words, ratio_text, stays

if TYPE_CHECKING:
    from tuner_tui.tuning.process.tuning_reader import TuningView
    from tuner_tui.tuning.trial import TuningConclusion

LABEL = 8
STOPPED: Mapping[str, tuple[str, Style, str]] = {
    "aborted": (WARN, "warn", "Aborted; every figure is kept. R goes on where it stood."),
    "killed": (WARN, "warn", "Nobody works on it, and it was not at its end. R goes on where it stood."),
    "failed": (BAD, "bad", "It could not go on."),
}


def tuning_rows(view: TuningView | None, now_s: float | None, width: int) -> list[Row]:
    """The head of the screen; `now_s` in seconds since the epoch."""
    if view is None:
        return [Row(line(Run("Reading the tuning.", "dim")))]
    rows = _ended(view, width) if view.status != "running" else _under_way(view, now_s, width)
    return rows + _best(view, width) + (_verdict(view.verdict, view.preset, stays(view), width) if view.verdict else [])


def _under_way(view: TuningView, now_s: float | None, width: int) -> list[Row]:
    trial, left = view.current, left_words(view)
    if trial is None:
        return [Row(line(Run("Between two trials. ", "strong"), left))]
    given = view.tried[0].trial.settings if view.tried else None
    since = None if now_s is None or view.current_since_t is None else now_s - view.current_since_t
    for_how_long = "" if since is None else f" · for {f.duration(since)}"
    first = line(
        Run(f"▸ trial {trial.number}", "strong"),
        f" · {changed_words(trial, given)}{for_how_long}",
        f" · {left}" if left else "",
    )
    return [Row(first), *_labelled("why", trial.reason, width)]


def _ended(view: TuningView, width: int) -> list[Row]:
    if view.status == "finished":
        return _labelled("note", view.trouble, width, "warn") if view.trouble else []
    mark, style, words = STOPPED[view.status]
    rows = [Row(line(Run(f"{mark} {words}", style)))]
    return rows + (_labelled("trouble", view.trouble, width, style) if view.trouble else [])


def _best(view: TuningView, width: int) -> list[Row]:
    """The best so far, as long as there is no verdict."""
    standing = Standing.of(view)
    best = standing.results.best
    if view.verdict is not None or best is None or standing.start is None or best.throughput is None:
        return []
    first = next(one.trial for one in view.tried if one.trial.settings == best.settings)
    words = changed_words(first, standing.given)
    figures = (
        f"{ratio_text(best.throughput / standing.start)} of the start · {f.figure(best.throughput)} {standing.unit}"
    )
    return _labelled("best", f"{figures} · {f.gib(best.peak_bytes)} GiB · trial {first.number}: {words}", width)


def _verdict(verdict: TuningConclusion, preset: str | None, stays: bool, width: int) -> list[Row]:
    """The ratio with its spread first, then the sentence; what to do with it last, where there is something to take."""
    rows: list[Row] = []
    if verdict.ratio is not None:
        spread = ""
        if verdict.ratio_low is not None and verdict.ratio_high is not None:
            spread = f" ({ratio_text(verdict.ratio_low)} … {ratio_text(verdict.ratio_high)})"
        rows.append(
            Row(line(Run(f"{GOOD} {ratio_text(verdict.ratio)}", "good"), f"{spread} of the start's throughput"))
        )
    rows += [Row(line(text)) for text in wrap_text(verdict.sentence, max(20, width))]
    if verdict.learning_rate_note:
        rows += _labelled("LR", verdict.learning_rate_note, width)
    if preset is not None:
        rows += _labelled("saved", preset, width)
    if stays:
        return rows
    return [*rows, *_labelled("next", "a shows what it would change, and puts it into the settings", width)]


def skipped_rows(view: TuningView | None, width: int) -> list[Row]:
    """What was not tried, and why."""
    if view is None or not view.skipped:
        return [Row(line(Run("Nothing was left out." if view and view.verdict else "Nothing yet.", "dim")))]
    rows: list[Row] = []
    for one in view.skipped:
        rows.append(Row(line(_label_of(one.knob), " ", one.value)))
        rows += [Row(line(Run(f"  {text}", "dim"))) for text in wrap_text(one.reason, max(12, width - 2))]
    return rows


def _label_of(knob: str) -> str:
    from tuner_tui.settings.fields import FIELDS

    return FIELDS[knob].label if knob in FIELDS else knob


def _labelled(label: str, text: str, width: int, style: Style = "") -> list[Row]:
    texts = wrap_text(text, max(20, width - LABEL)) or [""]
    return [
        Row(line(Run(f"{label if at == 0 else '':<{LABEL}}", "dim"), Run(part, style))) for at, part in enumerate(texts)
    ]
