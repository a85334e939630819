"""The in-effect panel: the settings asked for next to those seen in effect in the training process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from textual.reactive import reactive

from tuner_tui.core.text import format_observed
from tuner_tui.ui.terminal.base_widgets import Canvas
from tuner_tui.view.cells import GOOD, WARN, Row, Style, TextSpan, align_left, line

if TYPE_CHECKING:
    from tuner_tui.advice.settings_check import SettingCheck
    from tuner_tui.runs.events.run_state import RunState
    from tuner_tui.runs.store.record import RunRecord


MARKS: Mapping[str, tuple[str, Style]] = {"agrees": (f"{GOOD} ", "good"), "differs": (f"{WARN} ", "warn")}


def in_effect_rows(state: RunState | None, record: RunRecord | None, width: int) -> list[Row]:
    """Return a heading and a row per setting that was seen in effect or not applied."""
    if state is None:
        return [Row(line(TextSpan("No run is open.", "dim")))]
    from tuner_tui.advice.settings_check import verify_settings
    from tuner_tui.advice.situation import situation_of_state

    found = verify_settings(situation_of_state(state, record))
    if not found:
        return [Row(line(TextSpan("The training has not reported its settings yet.", "dim")))]
    name = max(10, min(max(len(_label(one)) for one in found), width * 2 // 5))
    column = max(6, (width - name - 4) // 2)
    heading = Row(line(TextSpan(" " * (3 + name) + align_left("requested", column) + " in effect", "dim")))
    return [heading, *(_row(one, name, column) for one in found)]


def _label(one: SettingCheck) -> str:
    """Return the label of the setting in the form, or the name that the observer gave it."""
    from tuner_tui.settings.model import FIELDS

    return FIELDS[one.name].label if one.name in FIELDS else one.name.replace("_", " ")


def _row(one: SettingCheck, name: int, column: int) -> Row:
    differs = one.verdict == "differs"
    mark, style = MARKS.get(one.verdict, ("  ", "dim"))
    label = TextSpan(align_left(_label(one), name), "dim")
    words = "not applied" if differs and one.seen is None else format_observed(one.seen)
    seen = TextSpan(align_left(words, column), "warn" if differs else "")
    return Row(line(TextSpan(mark, style), label, " ", align_left(format_observed(one.asked), column), " ", seen))


class InEffectPanel(Canvas, can_focus=True):
    """Compares the settings in the run's `record` with `state.in_effect`."""

    REDRAW_ON = ("state", "record")

    state: reactive[RunState | None] = reactive(None, repaint=False)
    record: reactive[RunRecord | None] = reactive(None, repaint=False)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return in_effect_rows(self.state, self.record, width)
