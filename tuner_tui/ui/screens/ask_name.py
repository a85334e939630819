"""Asks for the name of a preset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.widgets import Input, Static

from tuner_tui.ui.screens.dialog import Dialog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.widget import Widget


class NameScreen(Dialog[str]):
    """The answer is the name typed; an empty one is no answer."""

    hint = "enter save · esc back"

    def __init__(self, heading: str, name: str) -> None:
        super().__init__()
        self.heading = heading
        self._first = name

    def body(self) -> Iterable[Widget]:
        yield Static("Name: letters, digits, dot, dash, underscore", markup=False, classes="quiet")
        name = Input(self._first, compact=True, select_on_focus=False)
        name.cursor_blink = False
        yield name

    @on(Input.Submitted)
    def _named(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self.dismiss(event.value.strip())
