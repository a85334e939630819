"""A terminal that understands what the screen writes: where the cursor goes, colours, text; and an app that has one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from textual._compositor import CompositorUpdate
from textual.app import App

from tuner_tui.ui.terminal.cell_writer import TerminalCells

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.screen import Screen

_PARTS = re.compile(
    r"\x1b\[(?P<y>\d+);(?P<x>\d+)H|\x1b\[(?P<look>[\d;]*)m|\x1b\[(?P<right>\d+)C"
    r"|(?P<down>\r?\n)|(?P<character>[^\x1b])"
)


class FakeTerminal:
    """Cells by row and column, each its character and its look; the second cell of a wide character is empty."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], tuple[str, str]] = {}

    def feed(self, written: str) -> None:
        """Show what was written; fails where it is not understood."""
        x = y = at = 0
        look = ""
        while at < len(written):
            part = _PARTS.match(written, at)
            assert part is not None, written[at : at + 20]
            at = part.end()
            if part["character"]:
                for cell in (part["character"], *[""] * (cell_len(part["character"]) - 1)):
                    self.cells[y, x] = (cell, look)
                    x += 1
            elif part["look"] is not None:
                look = part["look"].removeprefix("0;") if part["look"] != "0" else ""
            elif part["down"]:
                y += 1
            elif part["right"]:
                x += int(part["right"])
            else:
                y, x = int(part["y"]) - 1, int(part["x"]) - 1
        assert look == "", "colours are left on for whoever writes next"

    def text(self, y: int, width: int) -> str:
        """Row `y`."""
        return "".join(self.cells.get((y, x), (" ", ""))[0] for x in range(width))


class TerminalApp(App[None]):
    """An app without a head that writes to a fake terminal what it would write to a real one."""

    def __init__(self) -> None:
        super().__init__()
        self.is_settling, self.is_blank = False, False
        self.terminal = FakeTerminal()
        self.written = ""
        self._shown = TerminalCells()

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        update = self._shown.wrap(renderable)
        if isinstance(update, CompositorUpdate):
            written = update.render_segments(self.console)
            self.terminal.feed(written)
            self.written += written
        super()._display(screen, renderable)
