"""The one-line field in which a search is typed."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input


class SearchField(Input):
    """Hidden until `open`; says what to search for, or that the search was given up."""

    DEFAULT_CSS = """
    SearchField, SearchField:focus {
        height: 1; border: none; padding: 0; display: none; background: $panel; color: $foreground;
        &.-open { display: block; }
        &:nocolor { text-style: underline; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", "Close", id="search.close", tooltip="Close the search"),
    ]

    class Wanted(Message):
        """Search for `text`."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class GivenUp(Message):
        """No search any more."""

    def open(self) -> None:
        """Show the field and take the focus."""
        self.add_class("-open")
        self.focus()

    async def action_submit(self) -> None:
        self.remove_class("-open")
        self.post_message(self.Wanted(self.value))

    def action_give_up(self) -> None:
        """Close the field and forget what was searched for."""
        self.remove_class("-open")
        self.value = ""
        self.post_message(self.GivenUp())
