"""What a remedy would change, line by line; with one key it is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import Static

from tuner_tui.ui.screens.dialog import Dialog
from tuner_tui.ui.screens.labelled import labelled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from textual.widget import Widget

    from tuner_tui.advice.finding import Remedy


@dataclass(frozen=True, slots=True)
class Change:
    """One setting: its label, the value it has and the one it would get."""

    label: str
    old: str
    new: str


class DiffScreen(Dialog[bool]):
    """Shows `changes`, what to expect of them and when they count; the answer is True to apply them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a,y,enter", "apply", "Apply", id="diff.apply", tooltip="Put the new values into the settings"),
        Binding("n", "leave", "Back", id="diff.leave", show=False),
    ]

    def __init__(self, remedy: Remedy, changes: Sequence[Change], when: str) -> None:
        super().__init__()
        self.heading = remedy.title
        self.hint = "a apply · esc back" if changes else "esc back"
        self._remedy = remedy
        self._changes = changes
        self._when = when

    def body(self) -> Iterable[Widget]:
        if not self._changes:
            yield Static("The settings have these values already: nothing would change.", markup=False)
            return
        remedy = self._remedy
        yield Static(self._lines(), markup=False)
        expected = ("expect", remedy.effect), ("rests on", remedy.rests_on), ("counts", self._when)
        yield Static(labelled(expected))

    def _lines(self) -> Text:
        label = max(len(change.label) for change in self._changes)
        old = max(len(change.old) for change in self._changes)
        text = Text()
        for change in self._changes:
            text.append(f"{change.label:<{label}}   {change.old:>{old}}  →  ")
            text.append(f"{change.new}\n", "bold")
        return text

    def action_apply(self) -> None:
        """Yes."""
        if self._changes:
            self.dismiss(True)
