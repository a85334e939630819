"""Widgets that keep the lines they rendered until something changes.

For one changed figure the compositor asks every widget between the first and the last changed cell for all of its
lines. Textual caches single lines; collecting them again costs a seventh of what the screen costs."""

from __future__ import annotations

from typing import Self

from textual.geometry import Region
from textual.strip import Strip
from textual.visual import VisualType
from textual.widget import Widget


class CachedWidget(Widget):
    """Keeps what it painted. All that makes a widget look different goes through the two methods that forget it."""

    _kept: tuple[Region, list[Strip]] | None = None

    def _set_dirty(self, *regions: Region) -> None:
        self._kept = None
        super()._set_dirty(*regions)

    def notify_style_update(self) -> None:
        """Another theme, or another rule of the style sheet."""
        self._kept = None
        super().notify_style_update()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of `crop`, as they were painted last where nothing has changed."""
        if self._kept is None or self._kept[0] != crop:
            self._kept = crop, super().render_lines(crop)
        return self._kept[1]


class TitledWidget(CachedWidget):
    """Sets titles by `entitle` and `say_below`: a title that is set the usual way paints the panel and all it holds."""

    _row: int | None = None
    """The row of the frame whose title is being set."""

    def entitle(self, title: VisualType) -> None:
        """Set the title above."""
        self._set_on(0, "border_title", title)

    def say_below(self, subtitle: VisualType) -> None:
        """Set the title below."""
        self._set_on(self.outer_size.height - 1, "border_subtitle", subtitle)

    def _set_on(self, row: int, name: str, title: VisualType) -> None:
        self._row = row
        try:
            setattr(self, name, title)
        finally:
            self._row = None

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Of a title that is being set, its row alone."""
        if self._row is not None:
            frame = self.content_offset
            regions = (Region(-frame.x, self._row - frame.y, self.outer_size.width, 1),)
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)
