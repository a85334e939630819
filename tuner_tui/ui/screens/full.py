"""A screen as large as the terminal."""

from __future__ import annotations

from textual.screen import Screen

from tuner_tui.ui.widgets.backdrop import Backdrop


class FullScreen(Backdrop, Screen[None]):
    """Stands still while another screen lies over it.

    For every figure that moves below, the toolkit would paint all of the screen on top anew: over SSH that is some
    kilobytes a second, for as long as a dialog is open.
    """

    @property
    def is_current(self) -> bool:
        """Whether this screen is the one on top, and is painted."""
        return self.app.screen is self
