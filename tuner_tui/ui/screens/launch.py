"""What is about to start, line by line: the exact command, and every setting that it will not get."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.table import Table
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from tuner_tui.ui.screens.dialog import Dialog

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
        yield VerticalScroll(Static(self._table()))

    def _table(self) -> Table:
        """Labels and texts in two columns: a long command wraps beside its label."""
        table = Table.grid(padding=(0, 2), expand=True)
        table.add_column(no_wrap=True)
        table.add_column(ratio=1, overflow="fold")
        left_out = False
        for label, said in self._lines:
            left_out = label == "Not applied" or (left_out and not label)
            style = "bold" if label in ("Command", "Not applied") else "dim" if left_out else ""
            table.add_row(Text(label, "bold" if label == "Not applied" else "dim"), Text(said, style))
        return table

    def action_answer(self, yes: bool) -> None:
        """Give the answer."""
        self.dismiss(yes)
