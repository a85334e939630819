"""Base class of both apps: terminal life cycle, signals, themes, notifications, background tasks."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import termios
import threading
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import suppress
from threading import Timer
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.app import App
from textual.filter import NoColor

from tuner_tui.core.terminal_notification import terminal_notification
from tuner_tui.ui.backend.interface import BackendError
from tuner_tui.ui.keys import APP_KEYS
from tuner_tui.ui.terminal.cell_diff import TerminalCells
from tuner_tui.ui.terminal.crash_report import write_crash_report
from tuner_tui.ui.theme import DARK, LIGHT, PLAIN, THEMES, Ascii

if TYPE_CHECKING:
    from types import FrameType

    from rich.console import RenderableType
    from textual.binding import BindingType
    from textual.driver import Driver
    from textual.filter import LineFilter
    from textual.notifications import SeverityLevel
    from textual.screen import Screen

STDIN, STDOUT = 0, 1
LEAVE_SCREEN = b"\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1049l\x1b[?25h"
"""No mouse, no bracketed paste, the screen of before, the cursor."""
EXIT_TIMEOUT_S = 5.0
"""How long the screen may take to leave once it is told to."""
ERROR_TIMEOUT_S, NOTE_TIMEOUT_S = 12.0, 5.0
"""How long a note stays: one that is an error, and any other."""


class BaseApp(App[None]):
    """An app without content. Nothing moves by itself, and nothing it does holds up the loop or the end."""

    BINDINGS: ClassVar[list[BindingType]] = [*APP_KEYS]

    def __init__(self, theme: str, colour: bool, ascii_only: bool) -> None:
        super().__init__(ansi_color=None if colour else True)
        self.animation_level = "none"
        self.no_color = self.no_color or not colour
        self._last_filters: list[LineFilter] = [NoColor()] * (not colour) + [Ascii()] * ascii_only
        for one in THEMES:
            self.register_theme(one)
        self.theme = (LIGHT if theme == "light" else DARK).name if colour else PLAIN.name
        self.set_class(ascii_only, "-ascii")
        self._shown = TerminalCells()
        self._cooked = _terminal_attributes()

    def get_driver_class(self) -> type[Driver]:
        """The quiet driver in place of Textual's own for Linux."""
        from textual.drivers.linux_driver import LinuxDriver

        from tuner_tui.ui.terminal.input_driver import BlockingDriver

        found = super().get_driver_class()
        return BlockingDriver if found is LinuxDriver else found

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *self._last_filters]

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        super()._display(screen, self._shown.wrap(renderable))

    def action_redraw(self) -> None:
        """Write every cell again: another program has written over the screen."""
        self._display(self.screen, self.screen._compositor.render_update(full=True))

    def change_theme(self) -> None:
        """From dark to light, or back; without colour there is nothing to change."""
        if self.theme != PLAIN.name:
            self.theme = LIGHT.name if self.theme == DARK.name else DARK.name

    def leave_on_signals(self) -> None:
        """A closed terminal or a polite kill ends the screen, restores the terminal, and leaves the training alone."""
        if self.is_headless:
            return
        loop, cooked = asyncio.get_running_loop(), self._cooked

        def told_to_leave(number: int, frame: FrameType | None) -> None:
            # A terminal that is gone takes no more writes, and the loop may be waiting for one of them.
            _force_exit_after(EXIT_TIMEOUT_S, 128 + number, cooked)
            loop.call_soon_threadsafe(self.exit, None, 128 + number)

        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, told_to_leave)

    def tidy_once(self) -> None:
        """After the first frame, what its making left behind; what stays is not looked through for rubbish again."""
        if not self.is_headless:
            gc.collect()
            gc.freeze()
            gc.enable()

    def end_with_threads(self) -> None:
        """A thread that fails through a mistake of the program ends the screen as the loop itself would."""
        if self.is_headless:
            return
        loop = asyncio.get_running_loop()

        def failed(thread: threading.ExceptHookArgs) -> None:
            if isinstance(thread.exc_value, Exception):
                loop.call_soon_threadsafe(self._handle_exception, thread.exc_value)

        threading.excepthook = failed

    def _fatal_error(self) -> None:
        """One sentence and a file, where the toolkit would print a traceback with the values of all variables."""
        from tuner_tui.runs.store.folder import state_dir

        if self._exception is not None and not self._exit_renderables:
            self._exit_renderables.append(Text(write_crash_report(self._exception, state_dir()), overflow="fold"))
        self._close_messages_no_wait()

    def errand(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what takes time in a task of its own; where it fails, say why."""
        self.run_worker(self._spoken(work), exit_on_error=True)

    async def _spoken(self, work: Awaitable[None]) -> None:
        try:
            await work
        except BackendError as error:
            self.say(str(error), "error")

    def ring(self, sentence: str) -> None:
        """The bell, and a note for the desktop where the terminal can: for somebody who looks elsewhere."""
        if self._driver is not None and not self.is_headless:
            self._driver.write(terminal_notification(sentence, os.environ))

    def say(self, sentence: str, severity: SeverityLevel = "information") -> None:
        """A note in the corner; brackets in it are brackets."""
        stay_s = ERROR_TIMEOUT_S if severity == "error" else NOTE_TIMEOUT_S
        self.notify(sentence, severity=severity, timeout=stay_s, markup=False)


def _terminal_attributes() -> list[Any] | None:
    """How the terminal is set, before anything is changed; None where there is none."""
    try:
        return termios.tcgetattr(STDIN)
    except termios.error:
        return None


def _force_exit_after(seconds: float, code: int, cooked: list[Any] | None) -> None:
    """End the process and leave the terminal as it was, unless the screen has done both before."""

    def end() -> None:
        with suppress(OSError, termios.error):
            os.set_blocking(STDOUT, False)  # a terminal that takes no more holds nobody up
            os.write(STDOUT, LEAVE_SCREEN)
            if cooked is not None:
                termios.tcsetattr(STDIN, termios.TCSANOW, cooked)
        os._exit(code)

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
