"""Screens that are dismissed once: of two quick keys Textual's second `dismiss` takes away the screen below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from textual.await_complete import AwaitComplete

Result = TypeVar("Result")

if TYPE_CHECKING:
    from textual.screen import Screen

    class _Screen(Screen[Result]):
        """The screen that the class below is mixed into. As a base class it would hide the style sheet of another."""
else:

    class _Screen(Generic[Result]):
        pass


class DismissedOnce(_Screen[Result]):
    """Mixed into a screen, ignores `dismiss` while another screen is on top."""

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()
