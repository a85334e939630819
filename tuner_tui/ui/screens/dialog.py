"""The frame of every dialog: a box in the middle, a title, a line that says which keys work."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.app import ComposeResult
    from textual.widget import Widget

Result = TypeVar("Result")


class Dialog(ModalScreen[Result]):
    """Asks or shows something; escape leaves it without an answer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back", id="dialog.leave", tooltip="Leave without an answer"),
    ]
    heading = ""
    hint = "esc back"

    def body(self) -> Iterable[Widget]:
        """The widgets between title and hint."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        box = Vertical(*self.body(), id="dialog")
        box.border_title = Content(self.heading)
        box.border_subtitle = Content(self.hint)
        yield box

    def action_leave(self) -> None:
        """Leave without an answer."""
        self.dismiss(None)
