"""The queue screen: which runs wait, why, and which run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from textual.reactive import reactive

from tuner_tui.ui.keys import QUEUE_ENTRY_KEYS, QUEUE_KEYS
from tuner_tui.ui.messages import QueueAddWanted
from tuner_tui.ui.panels.queue import QueuePanel
from tuner_tui.ui.screens.sub_screen import SubScreen
from tuner_tui.ui.widgets.key_footer import KeyFooter

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from tuner_tui.scheduling.queueing import QueuedRun

QUEUE_GLOSSARY = (
    ("waiting", "it starts when its peak memory fits into what is free; the reason is on the line below"),
    ("order", "first in, first out; a later one passes only where that delays no earlier one"),
    ("held", "by you, or because it could not be started; h releases it"),
    ("whole card", "what a run needs is not known before one of its kind was measured: it has a card of its own"),
    ("queued q003", "an entry that starts at this moment"),
)


class QueueScreen(SubScreen):
    """Shows `lines`, which the app sets."""

    BINDINGS: ClassVar[list[BindingType]] = [*QUEUE_KEYS]
    HELP_KEYS = (*QUEUE_ENTRY_KEYS, *QUEUE_KEYS)
    GLOSSARY = QUEUE_GLOSSARY
    DEFAULT_CSS = """
    QueueScreen { overflow: hidden; }
    QueueScreen > QueuePanel { height: 1fr; }
    """

    lines: reactive[tuple[QueuedRun, ...]] = reactive((), init=False, repaint=False)

    def __init__(self) -> None:
        super().__init__()
        self._panel = QueuePanel(classes="panel")
        self.set_panel_title(self._panel, "Queue")

    def compose(self) -> ComposeResult:
        yield self._panel
        yield KeyFooter()

    def on_mount(self) -> None:
        self._panel.focus()

    def watch_lines(self, lines: tuple[QueuedRun, ...]) -> None:
        self._panel.now_s = time.time()
        self._panel.lines = lines
        counts = [(state, sum(one.state == state for one in lines)) for state in ("running", "waiting", "held")]
        self.set_panel_title(self._panel, " · ".join(["Queue", *(f"{n} {state}" for state, n in counts if n)]))

    def action_add(self) -> None:
        """Queue the training that the main screen shows."""
        self.post_message(QueueAddWanted())

    def action_leave(self) -> None:
        """Return to the main screen."""
        self.dismiss(None)
