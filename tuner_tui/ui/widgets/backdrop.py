"""The background behind the panels: a plain colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
