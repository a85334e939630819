"""What lies behind the panels: nothing but a colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.strip import Strip
from textual.widget import Widget

if TYPE_CHECKING:
    from textual.geometry import Region


class Backdrop(Widget):
    """Its rows are one row again and again: Textual cuts every row where a panel begins and keeps the pieces."""

    def render_lines(self, crop: Region) -> list[Strip]:
        strip = Strip.blank(crop.width, self.rich_style)
        for line_filter in self.get_line_filters():
            strip = strip.apply_filter(line_filter, self.background_colors[1])
        return [strip] * crop.height
