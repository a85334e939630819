"""The hardware panel: what the machine is, and the Python that trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.reactive import reactive

from tuner_tui.ui.terminal.base_widgets import Canvas
from tuner_tui.view.cells import Row
from tuner_tui.view.hardware_rows import hardware_rows

if TYPE_CHECKING:
    from tuner_tui.hardware.interpreter import Interpreter
    from tuner_tui.hardware.inventory import Inventory


class HardwarePanel(Canvas, can_focus=True):
    """Shows `inventory` and `interpreter`; None while they are being read."""

    REDRAW_ON = ("inventory", "interpreter")

    inventory: reactive[Inventory | None] = reactive(None, repaint=False)
    interpreter: reactive[Interpreter | None] = reactive(None, repaint=False)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return hardware_rows(self.inventory, self.interpreter, width)
