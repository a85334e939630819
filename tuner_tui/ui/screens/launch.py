"""What is about to start, line by line: the exact command, and every setting that it will not get."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from tuner_tui.ui.screens.dialog import Dialog
from tuner_tui.ui.screens.labelled import announced

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from textual.widget import Widget


class LaunchScreen(Dialog[bool]):
    """Shows `lines` (label and text); the answer is True to start it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,t,enter", "answer(True)", "Start", id="launch.yes", tooltip="Start it"),
        Binding("n", "leave", "Back", id="launch.no", show=False),
    ]
    hint = "enter start · esc back"

    def __init__(self, lines: Sequence[tuple[str, str]], heading: str = "Train") -> None:
        super().__init__()
        self.heading = heading
        self._lines = lines

    def body(self) -> Iterable[Widget]:
        yield VerticalScroll(Static(announced(self._lines)))

    def action_answer(self, yes: bool) -> None:
        """Give the answer."""
        self.dismiss(yes)
