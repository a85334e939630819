"""Base class of both apps: terminal life cycle, signals, themes, notifications, background tasks, crash reports."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import termios
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

from rich.text import Text
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Event, InputEvent, Paste
from textual.filter import NoColor

from tuner_tui.core.files import make_private
from tuner_tui.core.terminal_sequences import clipboard_sequence, terminal_notification
from tuner_tui.ui.backend.records import BackendError
from tuner_tui.ui.keys import APP_KEYS
from tuner_tui.ui.terminal.cell_writer import Ascii, SafeCells, TerminalCells
from tuner_tui.ui.terminal.input_driver import BlockingDriver, OrderedInput, UserRequests
from tuner_tui.ui.theme import DARK, LIGHT, PLAIN, THEMES

if TYPE_CHECKING:
    from types import FrameType

    from rich.console import RenderableType
    from textual.binding import BindingType
    from textual.driver import Driver
    from textual.filter import LineFilter
    from textual.notifications import SeverityLevel
    from textual.screen import Screen

Result = TypeVar("Result")
Args = ParamSpec("Args")
STDIN, STDOUT = 0, 1
LEAVE_SCREEN = b"\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1049l\x1b[?25h"
"""Disables mouse and bracketed paste, leaves the alternate screen, shows the cursor."""
LOST_TIMEOUT_S = 1.0
LOST_TERMINAL = frozenset({errno.EIO, errno.EPIPE, errno.EBADF})
"""Errors of writing to a terminal that is gone."""
EXIT_TIMEOUT_S = 5.0
"""Seconds that the app may take to exit after a signal."""
ERROR_TIMEOUT_S, NOTE_TIMEOUT_S = 12.0, 5.0
"""Seconds for which a notification is shown: an error, and any other."""


class BaseApp(App[None]):
    """An app without content: themes, terminal handling, background tasks, notifications."""

    BINDINGS: ClassVar[list[BindingType]] = [*APP_KEYS]

    def __init__(self, theme: str, colour: bool, ascii_only: bool) -> None:
        super().__init__(ansi_color=None if colour else True)
        self.animation_level = "none"
        self.no_color = self.no_color or not colour
        self._output_filters: list[LineFilter] = [SafeCells()] + [NoColor()] * (not colour) + [Ascii()] * ascii_only
        for available in THEMES:
            self.register_theme(available)
        self.theme = (LIGHT if theme == "light" else DARK).name if colour else PLAIN.name
        self.set_class(ascii_only, "-ascii")
        # GNU screen erases in the default colours.
        self._cells = TerminalCells(erases=not os.environ.get("TERM", "").startswith("screen"))
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._terminal_attributes = _terminal_attributes()
        self._requests = UserRequests()
        self._input = OrderedInput(self, self._requests, super().on_event)

    def get_driver_class(self) -> type[Driver]:
        """Replace Textual's driver for Linux with one that blocks on input instead of polling."""
        driver = super().get_driver_class()
        return BlockingDriver if driver is LinuxDriver else driver

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *self._output_filters]

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        super()._display(screen, self._cells.wrap(renderable))

    async def on_event(self, event: Event) -> None:
        """Handle keys and clicks in order, but none while the app closes: no screen is left to take them."""
        if isinstance(event, InputEvent | Paste):
            if not self.screen_stack:
                return
            if not event.is_forwarded:
                self._input.put(event)
                return
        await super().on_event(event)

    def action_redraw(self) -> None:
        """Write every cell again, for a terminal that another program has written to."""
        self._display(self.screen, self.screen._compositor.render_update(full=True))

    def change_theme(self) -> None:
        """Switch between dark and light; does nothing without colours."""
        if self.theme != PLAIN.name:
            self.theme = LIGHT.name if self.theme == DARK.name else DARK.name

    def call_at_terminal_start(self) -> None:
        """Called by the driver before it changes the terminal."""
        self.install_signal_handlers()
        self._event_loop = asyncio.get_running_loop()

    def call_when_terminal_is_lost(self) -> None:
        """Called from any thread when the terminal is gone: exit as on SIGHUP, without a report of a failure."""
        if self._event_loop is not None:
            _force_exit_after(LOST_TIMEOUT_S, 128 + signal.SIGHUP, None)
            self._event_loop.call_soon_threadsafe(self.exit, None, 128 + signal.SIGHUP)

    def install_signal_handlers(self) -> None:
        """Exit on signals that end a program and restore the terminal; a training goes on."""
        if self.is_headless:
            return
        loop, attributes = asyncio.get_running_loop(), self._terminal_attributes

        def leave(number: int, frame: FrameType | None) -> None:
            # A closed terminal blocks writes, and the event loop may be blocked in one: exit without it if need be.
            # 128 + number is what a shell reports for a process that a signal has ended.
            _force_exit_after(EXIT_TIMEOUT_S, 128 + number, attributes)
            loop.call_soon_threadsafe(self.exit, None, 128 + number)

        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, leave)

    def freeze_startup_objects(self) -> None:
        """Collect garbage once after the first frame, and exclude what remains from later collections."""
        if not self.is_headless:
            # Imports and the first frame leave about 90,000 objects that live as long as the app. The collector does
            # not visit frozen ones: a full collection of them would take 20 ms in the middle of a frame.
            gc.collect()
            gc.freeze()
            gc.enable()

    def exit_on_thread_errors(self) -> None:
        """Handle an unexpected exception in a thread like one in the event loop: it ends the app."""
        if self.is_headless:
            return
        loop = asyncio.get_running_loop()

        def failed(thread: threading.ExceptHookArgs) -> None:
            if isinstance(thread.exc_value, OSError) and thread.exc_value.errno in LOST_TERMINAL:
                self.call_when_terminal_is_lost()
            elif isinstance(thread.exc_value, Exception):
                loop.call_soon_threadsafe(self._handle_exception, thread.exc_value)

        threading.excepthook = failed

    def _fatal_error(self) -> None:
        """Print one sentence and write a report; Textual would print all local variables, secrets included."""
        from tuner_tui.runs.store.folder import state_dir

        if self._exception is not None and not self._exit_renderables:
            self._exit_renderables.append(Text(write_crash_report(self._exception, state_dir()), overflow="fold"))
        self._close_messages_no_wait()

    def run_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in a task of its own; a `BackendError` is shown as a notification."""
        self.run_worker(self._notify_errors(work), exit_on_error=True)

    def serve(self, request: Callable[Args, Coroutine[Any, Any, None]], *args: Args.args, **named: Args.kwargs) -> None:
        """Run a request of the user as a task: the keys that follow are for the screen it shows.

        The same request again is ignored until then.
        """
        if self._requests.accept(request):
            self.run_task(self._requests.serve(request, request(*args, **named)))

    async def ask(self, screen: Screen[Result]) -> Result | None:
        """Show a screen for a request, and return what it is dismissed with."""
        answer = self.push_screen(screen, wait_for_dismiss=True)
        self._requests.answer()
        try:
            return await asyncio.shield(answer)
        finally:
            self._requests.resume()

    def let_input_through(self) -> None:
        """Called by a request that takes a while: what is typed meanwhile is for the screen as it is."""
        self._requests.answer()

    async def _notify_errors(self, work: Awaitable[None]) -> None:
        try:
            await work
        except BackendError as error:
            self.show_note(str(error), "error")

    def notify_desktop(self, sentence: str) -> None:
        """Ring the bell, and show a desktop notification if the terminal supports it."""
        if self._driver is not None and not self.is_headless:
            self._driver.write(terminal_notification(sentence, os.environ))

    def copy_text(self, text: str) -> bool:
        """Put `text` on the clipboard of the terminal, through tmux and screen too; False if it has none."""
        sequence = clipboard_sequence(text, os.environ)
        if self._driver is not None and sequence is not None:
            self._driver.write(sequence)
        return sequence is not None

    def show_note(self, sentence: str, severity: SeverityLevel = "information") -> None:
        """Show a notification, unless it is shown already; `sentence` is plain text, not markup."""
        if any(shown.message == sentence for shown in self._notifications):
            return
        timeout_s = ERROR_TIMEOUT_S if severity == "error" else NOTE_TIMEOUT_S
        self.notify(sentence, severity=severity, timeout=timeout_s, markup=False)


def _terminal_attributes() -> list[Any] | None:
    """Return the terminal attributes before the app changes them, or None without a terminal."""
    try:
        return termios.tcgetattr(STDIN)
    except termios.error:
        return None


def _force_exit_after(seconds: float, code: int, attributes: list[Any] | None) -> None:
    """Restore the terminal and end the process after `seconds`, unless the app has exited before."""

    def end() -> None:
        with suppress(OSError, termios.error):
            os.set_blocking(STDOUT, False)  # a terminal that accepts no output must not block
            os.write(STDOUT, LEAVE_SCREEN)
            if attributes is not None:
                termios.tcsetattr(STDIN, termios.TCSANOW, attributes)
        os._exit(code)

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()


def write_crash_report(error: BaseException, folder: Path) -> str:
    """Write the traceback of `error` to a new file in `folder` (mode 0600) and return the sentence for the user.

    The traceback goes without the values of variables, which may hold the secrets of an environment.
    """
    cause = getattr(error, "error", error)  # a worker's failure wraps the error
    sentence = f"The screen failed: {type(cause).__name__}. This is a bug in tuner-tui; trainings continue."
    path = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    try:
        make_private(folder)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(_format_crash(cause))
    except OSError as refused:
        return f"{sentence} The report could not be written to {path}: {refused.strerror or refused}."
    return f"{sentence} The report is in {path}"


def _format_crash(error: BaseException) -> str:
    import platform
    from importlib.metadata import version

    from tuner_tui.core.redaction import redact_text

    where = f"tuner-tui {version('tuner-tui')}, textual {version('textual')}, Python {platform.python_version()}"
    return f"{where}\n\n{redact_text(''.join(traceback.format_exception(error)))}"
