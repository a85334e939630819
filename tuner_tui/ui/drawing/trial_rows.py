"""The trials of a tuning as a table: what each changed, how fast it was, what it took, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuner_tui.ui import format as f
from tuner_tui.ui.drawing.cells import Row, Run, Style, line
from tuner_tui.ui.drawing.marks import BAD, GOOD, WARN
from tuner_tui.ui.drawing.tables import GAP, cells
from tuner_tui.ui.drawing.tuning_words import (
    PURPOSES,
    Standing,
    bound_text,
    changed_words,
    outcome_words,
    ratio_text,
    stays,
)

if TYPE_CHECKING:
    from tuner_tui.tuning.process.tuning_reader import TuningView
    from tuner_tui.tuning.trial import CompletedTrial

FIXED = (4, 7, 0, 9, 7, 8, 8, 0)
"""Cells of each column; 0 shares what is left."""
ALIGNED = "rllrrrrl"
CHANGED, OUTCOME = 2, 7
NARROW = 88
LEFT_OUT = (1, 6)
"""Columns that a narrow table does without: the head says both of the trial under way."""
LEAST_OUTCOME = 15


class TrialRow(NamedTuple):
    """The texts of one row, and what its outcome looks like."""

    texts: tuple[str, ...]
    style: Style = ""


def trial_rows(view: TuningView | None, width: int) -> list[Row]:
    """Heading and a row a trial, newest last, the one under way at the end."""
    if view is None:
        return [Row(line(Run("Reading the tuning.", "dim")))]
    standing = Standing.of(view)
    rows = [_row(view, standing, one) for one in view.tried]
    if view.current is not None and view.status == "running":
        rows.append(_current(view, standing))
    if not rows:
        return [Row(line(Run("No trial yet.", "dim")))]
    heads = ("#", "for", "changed", standing.unit, "×start", "peak GiB", "at most", "")
    shown = [at for at in range(len(heads)) if at not in LEFT_OUT or width >= NARROW]
    columns = _columns(rows, shown, width)
    heading: list[Style] = ["dim" for _ in heads]
    return [_cells(heads, shown, columns, heading), *(_drawn(row, shown, columns) for row in rows)]


def _columns(rows: Sequence[TrialRow], shown: Sequence[int], width: int) -> list[int]:
    """What the figures leave is shared by what was changed and how it ended."""
    left = width - sum(FIXED[at] for at in shown) - GAP * (len(shown) - 1)
    longest = max(len(row.texts[OUTCOME]) for row in rows)
    changed = max(1, min(max(len(row.texts[CHANGED]) for row in rows), left - min(longest, LEAST_OUTCOME)))
    sizes = {CHANGED: changed, OUTCOME: max(1, left - changed)}
    return [sizes.get(at, FIXED[at]) for at in shown]


def _drawn(row: TrialRow, shown: Sequence[int], columns: Sequence[int]) -> Row:
    styles: list[Style] = ["dim", "dim", "", "", "", "", "dim", row.style]
    if row.style == "good":
        styles[CHANGED] = "strong"
    return _cells(row.texts, shown, columns, styles)


def _cells(texts: Sequence[str], shown: Sequence[int], columns: Sequence[int], styles: Sequence[Style]) -> Row:
    picked = [texts[at] for at in shown], columns, [styles[at] for at in shown], "".join(ALIGNED[at] for at in shown)
    return Row(cells(*picked))


def _row(view: TuningView, standing: Standing, one: CompletedTrial) -> TrialRow:
    trial, found = one.trial, one.measurement
    said, style = _ending(view, standing, one)
    figures = (
        f.figure(standing.rate(found)),
        ratio_text(standing.ratio(found)),
        f.gib(found.peak_bytes),
        bound_text(trial.bound),
    )
    return TrialRow(
        (str(trial.number), PURPOSES[trial.purpose], changed_words(trial, standing.given), *figures, said), style
    )


def _ending(view: TuningView, standing: Standing, one: CompletedTrial) -> tuple[str, Style]:
    found = one.measurement
    if found.outcome == "out-of-memory":
        return f"{BAD} {outcome_words(one)}", "bad"
    if found.outcome == "aborted":
        return outcome_words(one), "dim"
    if found.outcome != "measured":
        return f"{WARN} {outcome_words(one)}", "warn"
    if view.limit_bytes is not None and found.peak_bytes is not None and found.peak_bytes > view.limit_bytes:
        return f"{WARN} too little left free", "warn"
    if one.trial.settings == standing.best:
        final = "the start stays" if stays(view) else "winner"
        return f"{GOOD} {final if view.status == 'finished' else 'best so far'}", "good"
    return "", ""


def _current(view: TuningView, standing: Standing) -> TrialRow:
    trial = view.current
    assert trial is not None
    figures = (f.UNKNOWN, f.UNKNOWN, f.UNKNOWN, bound_text(trial.bound))
    said = f"▸ in {view.current_run}" if view.current_run else "▸ starting"
    return TrialRow(
        (str(trial.number), PURPOSES[trial.purpose], changed_words(trial, standing.given), *figures, said), "strong"
    )
