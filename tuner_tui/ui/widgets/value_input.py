"""The small input that lies over a value while it is edited."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.message import Message
from textual.widgets import Input

from tuner_tui.ui.keys import EDIT_KEYS

if TYPE_CHECKING:
    from textual.binding import BindingType
    from textual.events import Blur


class ValueInput(Input):
    """One line of text; says when it was accepted (and which way to go on) or given up."""

    DEFAULT_CSS = """
    ValueInput, ValueInput:focus {
        layer: over; position: absolute; height: 1; border: none; padding: 0; display: none;
        background: $panel; color: $foreground;
        &.-shown { display: block; }
        &.-wrong { color: $error; text-style: bold; }
        &:nocolor { text-style: underline; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = list(EDIT_KEYS)

    class Accepted(Message):
        """The text is to be taken; `then` is how many fields to go on."""

        def __init__(self, text: str, then: int) -> None:
            super().__init__()
            self.text = text
            self.then = then

    class Cancelled(Message):
        """The field stays as it was."""

    async def action_submit(self) -> None:
        self.post_message(self.Accepted(self.value, 0))

    def action_accept(self, then: int) -> None:
        """Take the text and go on by `then` fields."""
        self.post_message(self.Accepted(self.value, then))

    def action_cancel(self) -> None:
        """Give up."""
        self.post_message(self.Cancelled())

    def on_blur(self, event: Blur) -> None:
        """Whoever goes elsewhere gives up."""
        if self.has_class("-shown"):
            self.post_message(self.Cancelled())
