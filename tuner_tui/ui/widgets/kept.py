"""Widgets that hand out the lines they painted before, until something of them is to be painted anew.

For one figure that changes, the compositor asks every widget between the first changed cell and the last for all of
its lines. Textual's widgets keep each line; going through them all costs a seventh of what the screen costs.
"""

from __future__ import annotations

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


class Kept(Widget):
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
