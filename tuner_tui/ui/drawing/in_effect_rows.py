"""What was asked for beside what was seen in effect inside the training process; what differs first, and marked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner_tui.runs.events.run_state import RunState
from tuner_tui.ui.drawing.cells import Row, Run, Style, left, line
from tuner_tui.ui.drawing.marks import GOOD, WARN

if TYPE_CHECKING:
    from tuner_tui.advice.verification import SettingCheck
    from tuner_tui.runs.store.record import RunRecord

MARKS: Mapping[str, tuple[str, Style]] = {"agrees": (f"{GOOD} ", "good"), "differs": (f"{WARN} ", "warn")}


def in_effect_rows(state: RunState | None, record: RunRecord | None, width: int) -> list[Row]:
    """A row for each figure seen or not applied, under a heading."""
    if state is None:
        return [Row(line(Run("No run followed: nothing to compare with.", "dim")))]
    from tuner_tui.advice.situation import situation_of_state
    from tuner_tui.advice.verification import verify_settings

    found = verify_settings(situation_of_state(state, record))
    if not found:
        return [Row(line(Run("The training has not said yet what is in effect.", "dim")))]
    name = max(10, min(max(len(one.name) for one in found), width * 2 // 5))
    column = max(6, (width - name - 4) // 2)
    heading = Row(line(Run(" " * (3 + name) + left("asked for", column) + " in effect", "dim")))
    return [heading, *(_row(one, name, column) for one in found)]


def _row(one: SettingCheck, name: int, column: int) -> Row:
    from tuner_tui.advice.verification import format_setting

    differs = one.verdict == "differs"
    mark, style = MARKS.get(one.verdict, ("  ", "dim"))
    label = Run(left(one.name, name), "dim")
    words = "not applied" if differs and one.seen is None else format_setting(one.seen)
    seen = Run(left(words, column), "warn" if differs else "")
    return Row(line(Run(mark, style), label, " ", left(format_setting(one.asked), column), " ", seen))
