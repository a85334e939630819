"""The hardware panel: what the box is and what it can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.reactive import reactive

from tuner_tui.ui.drawing.cells import Row
from tuner_tui.ui.drawing.hardware_rows import hardware_rows
from tuner_tui.ui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from tuner_tui.hardware.interpreter.probe import Interpreter
    from tuner_tui.hardware.inventory import Inventory


class HardwarePanel(Canvas, can_focus=True):
    """Shows `inventory` and `interpreter`; None while they are being read."""

    inventory: reactive[Inventory | None] = reactive(None, repaint=False)
    interpreter: reactive[Interpreter | None] = reactive(None, repaint=False)

    def watch_inventory(self) -> None:
        self.redraw()

    def watch_interpreter(self) -> None:
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return hardware_rows(self.inventory, self.interpreter, width)
