"""Base class of screens as large as the terminal."""

from __future__ import annotations

from textual.screen import Screen

from tuner_tui.ui.widgets.backdrop import Backdrop


class FullScreen(Backdrop, Screen[None]):
    """Keeps updating below a dialog, and repaints only the cells that changed.

    Textual repaints a screen below a dialog as a whole for each change: the screen marks as dirty what it has just
    painted, and one that was painted whole, as when a dialog opens, is painted whole from then on.
    """

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
