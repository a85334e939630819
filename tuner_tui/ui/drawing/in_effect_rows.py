"""What was asked for beside what was seen in effect inside the training process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tuner_tui.runs.state import RunState
from tuner_tui.ui import format as f
from tuner_tui.ui.drawing.cells import Row, Run, left, line
from tuner_tui.ui.drawing.marks import WARN

if TYPE_CHECKING:
    from tuner_tui.settings.model import Settings


def in_effect_rows(state: RunState | None, settings: Settings | None, width: int) -> list[Row]:
    """A row for each figure seen; those that differ from what was asked for are marked."""
    if state is None:
        return [Row(line(Run("No run followed: nothing to compare with.", "dim")))]
    if not state.in_effect:
        return [Row(line(Run("The training has not said yet what is in effect.", "dim")))]
    asked = settings.model_dump() if settings else {}
    return [_row(name, asked, seen, width) for name, seen in sorted(state.in_effect.items())]


def _row(name: str, asked: Mapping[str, Any], seen: Any, width: int) -> Row:
    wanted = asked.get(name)
    differs = name in asked and wanted is not None and wanted != seen
    column = max(6, (width - 32) // 2)
    return Row(
        line(
            Run(WARN if differs else " ", "warn" if differs else ""),
            " ",
            Run(left(name, 30), "dim"),
            left(_said(wanted) if name in asked else "", column),
            Run(left(_said(seen), column), "warn" if differs else ""),
        )
    )


def _said(value: Any) -> str:
    if value is None:
        return f.UNKNOWN
    return ("off", "on")[value] if isinstance(value, bool) else str(value)
