"""A question with yes and no, where yes cannot be taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Static

from tuner_tui.ui.screens.dialog import Dialog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.widget import Widget


class ConfirmScreen(Dialog[bool]):
    """Shows `question`; the answer is True only for a `y`. Enter is no answer: it is too near to other habits."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", id="confirm.yes", tooltip="Do it"),
        Binding("n", "answer(False)", "No", id="confirm.no", tooltip="Leave it"),
    ]

    def __init__(self, heading: str, question: str, yes: str = "yes") -> None:
        super().__init__()
        self.heading = heading
        self.hint = f"y {yes} · n no"
        self._question = question

    def body(self) -> Iterable[Widget]:
        yield Static(self._question, markup=False)

    def action_answer(self, yes: bool) -> None:
        """Give the answer."""
        self.dismiss(yes)
