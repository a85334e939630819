"""Base classes of what fills the terminal: a plain background, and screens that keep updating below a dialog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

if TYPE_CHECKING:
    from textual.geometry import Region


class Backdrop(Widget):
    """Renders the same strip for every row: Textual caches the pieces it crops from each strip."""

    def render_lines(self, crop: Region) -> list[Strip]:
        strip = Strip.blank(crop.width, self.rich_style)
        for line_filter in self.get_line_filters():
            strip = strip.apply_filter(line_filter, self.background_colors[1])
        return [strip] * crop.height


class FullScreen(Backdrop, Screen[None]):
    """Keeps updating below a dialog, and repaints only the cells that changed.

    Textual repaints a screen below a dialog as a whole for each change: the screen marks as dirty what it has just
    painted, and one that was painted whole, as when a dialog opens, is painted whole from then on.
    """

    ALLOW_SELECT = False  # panels draw cells: there is no text to select, and no style for what is selected

    def _compositor_refresh(self) -> None:
        top = self.app.screen
        if self is top or self not in self.app._background_screens:
            super()._compositor_refresh()
            return
        regions = self._compositor._dirty_regions
        if regions:
            top.refresh(*regions)
            regions.clear()
        self._dirty_widgets.clear()
