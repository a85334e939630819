"""A panel whose titles change without the rest of it being painted anew."""

from __future__ import annotations

from typing import Self

from textual.geometry import Region
from textual.visual import VisualType

from tuner_tui.ui.widgets.kept import Kept


class Framed(Kept):
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
