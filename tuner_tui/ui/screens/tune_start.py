"""What a tuning is about to do, and for how long at most: asked before it begins, and before it goes on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Input, Label, Static

from tuner_tui.ui.screens.dialog import Dialog
from tuner_tui.ui.screens.labelled import announced

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from textual.widget import Widget

GAP = 2
LEAST_MINUTES = 0.1
WRONG = "A number of minutes, such as 9 or 2.5."
SAID = "min; x ends it sooner, and keeps what was measured"
LABEL = "At most"


class TuneStartScreen(Dialog[float]):
    """Shows `lines` (label and text); the answer is the minutes that the tuning may take."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(1)", "More", id="tune-start.more", show=False),
        Binding("down", "step(-1)", "Less", id="tune-start.less", show=False),
    ]
    hint = "type or ↑ ↓ minutes · enter start · esc back"

    def __init__(self, lines: Sequence[tuple[str, str]], minutes: float, heading: str = "Tune") -> None:
        super().__init__()
        self.heading = heading
        self._lines = lines
        self._minutes = minutes

    def body(self) -> Iterable[Widget]:
        yield VerticalScroll(Static(announced(self._lines)), can_focus=False)
        minutes = Input(f"{self._minutes:g}", compact=True, restrict=r"[0-9]{0,5}\.?[0-9]{0,2}", id="minutes")
        minutes.cursor_blink = False
        label = Label(LABEL, classes="label")
        label.styles.width = max(map(len, (LABEL, *(label for label, _ in self._lines)))) + GAP
        yield Horizontal(label, minutes, Label(SAID, classes="said"), classes="row")

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def action_step(self, by: int) -> None:
        """Some minutes more, or fewer."""
        field = self.query_one(Input)
        field.value = f"{stepped(minutes_of(field.value) or self._minutes, by > 0):g}"
        field.cursor_position = len(field.value)

    @on(Input.Submitted)
    def action_accept(self) -> None:
        """Take the minutes, or say what is wrong with them."""
        minutes = minutes_of(self.query_one(Input).value)
        if minutes is None:
            said = self.query_one(".said", Label)
            said.update(WRONG)
            said.add_class("-wrong")
        else:
            self.dismiss(minutes)


def minutes_of(text: str) -> float | None:
    """What was typed, in minutes; None where it is no time."""
    try:
        minutes = float(text)
    except ValueError:
        return None
    return minutes if minutes >= LEAST_MINUTES else None


def stepped(minutes: float, up: bool) -> float:
    """The next sensible number of minutes above or below: single ones up to ten, then fives."""
    step = 1 if minutes < 10 or (minutes == 10 and not up) else 5
    return (math.floor(minutes / step) + 1) * step if up else max(1, (math.ceil(minutes / step) - 1) * step)
