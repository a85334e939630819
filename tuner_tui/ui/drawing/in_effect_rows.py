"""What was asked for beside what was seen in effect inside the training process; what differs first, and marked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner_tui.runs.state import RunState
from tuner_tui.ui import format as f
from tuner_tui.ui.drawing.cells import Row, Run, left, line
from tuner_tui.ui.drawing.marks import WARN

if TYPE_CHECKING:
    from tuner_tui.settings.model import Settings

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "none": "fp32"}
FUSED = {"adamw_torch_fused": True, "adamw_torch": False}


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure: its name, what was asked for and what was seen, in words, and whether they contradict."""

    name: str
    asked: str
    seen: str
    differs: bool = False


def in_effect_rows(state: RunState | None, settings: Settings | None, width: int) -> list[Row]:
    """A row for each figure seen or not applied, under a heading."""
    if state is None:
        return [Row(line(Run("No run followed: nothing to compare with.", "dim")))]
    found = sorted(compared(state, settings), key=lambda one: (not one.differs, one.name))
    if not found:
        return [Row(line(Run("The training has not said yet what is in effect.", "dim")))]
    name = min(30, max(10, width // 3))
    column = max(6, (width - name - 3) // 2)
    heading = Row(line(Run(" " * (2 + name) + left(" asked for", column + 1) + " in effect", "dim")))
    return [heading, *(_row(one, name, column) for one in found)]


def _row(one: Compared, name: int, column: int) -> Row:
    mark, style = (f"{WARN} ", "warn") if one.differs else ("  ", "")
    label = Run(left(one.name, name), "dim")
    seen = Run(left(one.seen, column), "warn" if style else "")
    return Row(line(Run(mark, "warn" if style else ""), label, " ", left(one.asked, column), " ", seen))


def compared(state: RunState, settings: Settings | None) -> list[Compared]:
    """Every figure the training has told, and every setting that found no place in it."""
    asked: Mapping[str, Any] = settings.model_dump() if settings else {}
    seen = dict(state.in_effect)
    rows = [Compared(name, said(asked.get(name)), "not applied", True) for name in state.not_injected]
    if "autocast_dtype" in seen:
        dtype = DTYPES.get(str(seen["autocast_dtype"]), str(seen["autocast_dtype"]))
        rows.append(Compared("precision", said(asked.get("precision")), dtype, asked.get("precision", dtype) != dtype))
        del seen["autocast_dtype"]
    if "optimizer" in seen:
        rows.append(_optimizer(asked.get("optim"), seen.pop("optimizer"), seen.pop("fused", None)))
    rows += [
        Compared(name, said(asked.get(name)), said(value), _differs(asked.get(name), value))
        for name, value in seen.items()
    ]
    return rows


def _optimizer(asked: str | None, kind: Any, fused: bool | None) -> Compared:
    contradicts = asked in FUSED and (kind != "AdamW" or bool(fused) != FUSED[asked])
    return Compared("optim", said(asked), f"{kind}{', fused' if fused else ''}", contradicts)


def _differs(asked: Any, seen: Any) -> bool:
    """Whether they contradict; what was left open, or could not be read, contradicts nothing."""
    return asked not in (None, "auto") and seen is not None and asked != seen


def said(value: Any) -> str:
    """A value in words."""
    if value is None:
        return f.UNKNOWN
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
