"""Widgets that keep the lines they rendered until something changes.

For one changed figure the compositor asks every widget between the first and the last changed cell for all of its
lines. Textual caches single lines; collecting them again costs a seventh of what the screen costs.
"""

from __future__ import annotations

from typing import Self

from textual.geometry import Region
from textual.strip import Strip
from textual.visual import VisualType
from textual.widget import Widget


class CachedWidget(Widget):
    """Caches its rendered lines. Every change of a widget's look passes through one of the two methods that clear
    the cache.
    """

    _line_cache: tuple[Region, list[Strip]] | None = None

    def _set_dirty(self, *regions: Region) -> None:
        self._line_cache = None
        super()._set_dirty(*regions)

    def notify_style_update(self) -> None:
        """Clear the cache: the theme or a CSS rule changed."""
        self._line_cache = None
        super().notify_style_update()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of `crop`, from the cache if it holds that region."""
        if self._line_cache is None or self._line_cache[0] != crop:
            self._line_cache = crop, super().render_lines(crop)
        return self._line_cache[1]


class TitledWidget(CachedWidget):
    """A widget whose border titles can change without repainting its contents, as setting `border_title` would."""

    _title_row: int | None = None
    """The row of the border whose title is being set."""

    def set_title(self, title: VisualType) -> None:
        """Set the title in the top border."""
        self._set_border_text(0, "border_title", title)

    def set_subtitle(self, subtitle: VisualType) -> None:
        """Set the title in the bottom border."""
        self._set_border_text(self.outer_size.height - 1, "border_subtitle", subtitle)

    def _set_border_text(self, row: int, name: str, text: VisualType) -> None:
        self._title_row = row
        try:
            setattr(self, name, text)
        finally:
            self._title_row = None

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Refresh the widget, or only the row of a title that is being set."""
        if self._title_row is not None:
            frame = self.content_offset
            regions = (Region(-frame.x, self._title_row - frame.y, self.outer_size.width, 1),)
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)
