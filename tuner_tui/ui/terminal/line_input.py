"""An input of one line that takes pasted lines too."""

from __future__ import annotations

import re

from textual.events import Paste
from textual.widgets import Input

LINE_END = re.compile(r"[ \t]*\\\r?\n[ \t]*|\r?\n[ \t]*")


class LineInput(Input):
    """One line of text. Pasted lines are joined, at a backslash as in a shell."""

    def __init__(self, value: str = "", *, select: bool = False, id: str | None = None, placeholder: str = "") -> None:
        super().__init__(value, compact=True, select_on_focus=select, id=id, placeholder=placeholder)
        self.cursor_blink = False

    def _on_paste(self, event: Paste) -> None:
        event.stop()
        event.prevent_default()
        self.replace(join_lines(event.text), *self.selection)


def join_lines(text: str) -> str:
    r"""Return `text` in one line: `python train.py \` and `  --lr 1` become `python train.py --lr 1`."""
    return LINE_END.sub(" ", text.strip())
