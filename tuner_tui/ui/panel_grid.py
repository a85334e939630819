"""The place where the panels stand: asks `arrangement` for their boxes and puts them there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.geometry import NULL_OFFSET, NULL_SPACING, Region
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from tuner_tui.ui.arrangement import Arrangement, Box
from tuner_tui.ui.widgets.backdrop import Backdrop

if TYPE_CHECKING:
    from textual.geometry import Size


class BoxLayout(Layout):
    """Puts each child into the box that bears its id; a child without a box is not shown."""

    name = "boxes"

    def __init__(self) -> None:
        self.boxes: dict[str, Box] = {}

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        return [
            WidgetPlacement(Region(box.x, box.y, box.width, box.height), NULL_OFFSET, NULL_SPACING, child)
            for child in children
            if (box := self.boxes.get(child.id or "")) is not None
        ]


class PanelGrid(Backdrop):
    """Holds the panels; `show` moves them."""

    DEFAULT_CSS = "PanelGrid { width: 1fr; height: 1fr; layers: base; }"

    def __init__(self, *children: Widget, id: str | None = None) -> None:
        super().__init__(*children, id=id)
        self._boxes = BoxLayout()

    @property
    def layout(self) -> Layout:
        return self._boxes

    def show(self, arrangement: Arrangement) -> None:
        """Put the panels where `arrangement` has them; the others leave the screen."""
        if self._boxes.boxes == arrangement.boxes:
            return
        before, self._boxes.boxes = self._boxes.boxes, dict(arrangement.boxes)
        for child in self.children:
            child.display = child.id in arrangement.boxes
            if child.display and before.get(child.id or "") != arrangement.boxes[child.id or ""]:
                # A widget that asks for a layout has what is around it laid out anew, and not itself.
                child.refresh(layout=True)
