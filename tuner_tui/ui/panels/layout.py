"""The widget that places the panels in their boxes."""

from __future__ import annotations

from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from tuner_tui.ui.panels.arrangement import Arrangement, Box
from tuner_tui.ui.terminal.base_widgets import blank_lines


class BoxLayout(Layout):
    """Places each child in the box of its id; children without a box are hidden."""

    name = "boxes"

    def __init__(self) -> None:
        self.boxes: dict[str, Box] = {}

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        return [
            WidgetPlacement(Region(*box), NULL_OFFSET, NULL_SPACING, child)
            for child in children
            if (box := self.boxes.get(child.id or "")) is not None
        ]


class PanelGrid(Widget):
    """Contains the panels; `show` moves them."""

    render_lines = blank_lines

    def __init__(self, *children: Widget, id: str | None = None) -> None:
        super().__init__(*children, id=id)
        self._boxes = BoxLayout()

    @property
    def layout(self) -> Layout:
        return self._boxes

    def show(self, arrangement: Arrangement) -> None:
        if self._boxes.boxes == arrangement.boxes:
            return
        before, self._boxes.boxes = self._boxes.boxes, dict(arrangement.boxes)
        for child in self.children:
            child.display = child.id in arrangement.boxes
            if child.display and before.get(child.id or "") != arrangement.boxes[child.id or ""]:
                # refresh(layout=True) of a widget lays out its parent, not the widget itself.
                child.refresh(layout=True)
