"""Base class of all apps: themes, input in order, notifications, background tasks, crash reports."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import platform
import signal
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import textual
from rich.console import RenderableType
from rich.text import Text
from textual.app import App
from textual.binding import BindingType
from textual.css.model import RuleSet
from textual.css.query import NoMatches
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Event, InputEvent, Key, Paste
from textual.filter import LineFilter, NoColor
from textual.message_pump import MessagePump
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.widgets import Input
from textual.worker import Worker

from tuner_tui import __version__
from tuner_tui.core.files import make_private
from tuner_tui.core.text import clipboard_sequence, terminal_notification
from tuner_tui.ui.feeds import BackendError
from tuner_tui.ui.keys import KEYS
from tuner_tui.ui.terminal.cell_writer import Ascii, SafeCells, TerminalCells
from tuner_tui.ui.terminal.terminal_driver import TerminalDriver
from tuner_tui.ui.theme import DARK, LIGHT, PLAIN, SIXTEEN, THEMES

Result = TypeVar("Result")
LOST_TERMINAL = frozenset({errno.EIO, errno.EPIPE, errno.EBADF})
"""Errors of writing to a terminal that is gone."""
_request: ContextVar[object] = ContextVar("_request", default=None)
"""The request of the user that the running task serves."""
MAX_WAITING_KEYS = 256
"""More than a person types ahead: text pasted without brackets. The rest is dropped."""


class SharedStylesheet(Stylesheet):
    """Parses each source once for a set of colours; Textual does so twice at a start, and for each app of a process."""

    _parsed: ClassVar[dict[tuple[object, ...], list[RuleSet]]] = {}

    def _parse_rules(self, css: str, *args: Any, **options: Any) -> list[RuleSet]:
        key = (css, *args, *options.values(), *self._variables.items())
        if key not in self._parsed:
            self._parsed[key] = super()._parse_rules(css, *args, **options)
        return self._parsed[key]

    reparse = Stylesheet.parse


class BaseApp(App[None]):
    """An app without content.

    `error_timeout_s`, `note_timeout_s`: seconds for which a notification is shown, an error and any other.
    """

    error_timeout_s, note_timeout_s = 12.0, 5.0
    answer_limit_s = 2.0
    """How long input waits for a request of the user that hangs, such as one that reads a disk which is gone."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["app"]]
    ENABLE_COMMAND_PALETTE = False  # Textual's own binding would hide ours from the footer

    def __init__(self, theme: str, colour: bool, ascii_only: bool) -> None:
        super().__init__(ansi_color=None if colour else True)
        self.stylesheet = SharedStylesheet(variables=self.get_css_variables())
        self.animation_level = "none"
        self.no_color = self.no_color or not colour
        self._output_filters: list[LineFilter] = [SafeCells()] + [NoColor()] * (not colour) + [Ascii()] * ascii_only
        for available in THEMES:
            self.register_theme(available)
        self._dark = SIXTEEN.name if theme == "sixteen" else DARK.name
        self.theme = (LIGHT.name if theme == "light" else self._dark) if colour else PLAIN.name
        self.set_class(ascii_only, "-ascii")
        self._cells = TerminalCells()
        self._unsettled = 1
        """How many of the start and the changes of size have not led to a whole frame yet."""
        self.typed_s = 0.0
        """When the key was pressed that is handled now, in seconds of the monotonic clock."""
        self._is_ready, self._can_answer = asyncio.Event(), asyncio.Event()
        self._can_answer.set()
        self._is_held = False
        """Whether a key waits until the app can answer."""
        self._input: asyncio.Queue[Event] | None = None
        self._requests: set[object] = set()
        self._holding: set[object] = set()
        """The requests for which input waits."""
        self._answered = asyncio.Event()
        self._answered.set()

    def get_driver_class(self) -> type[Driver]:
        driver = super().get_driver_class()
        return TerminalDriver if driver is LinuxDriver else driver

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *self._output_filters]

    # output

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if not self.is_settling:
            super()._display(screen, self._cells.wrap(renderable))

    @property
    def is_settling(self) -> bool:
        """Whether frames are not written yet, because the panels have not their places."""
        return bool(self._unsettled or self._resize_timer is not None)

    @property
    def is_blank(self) -> bool:
        """Whether the terminal shows nothing that is known.

        Textual writes nothing in a batch, so that this may still be so after a whole frame.
        """
        return self._cells.are_forgotten and not self.is_headless

    def on_ready(self) -> None:
        self._is_ready.set()
        self.call_after_refresh(self._settle)

    def _check_resize(self) -> None:
        """Write nothing until each panel has its new place and content: Textual draws several frames until then."""
        self._unsettled += 1
        super()._check_resize()
        self.call_after_refresh(self._settle)

    def _settle(self) -> None:
        """Write every cell again, as terminals move what they show; later if the screen has not its new size yet."""
        if not self.screen_stack:  # it closes
            return
        if self.screen._compositor.size != self.size:
            self.call_after_refresh(self._settle)
            return
        self._unsettled -= 1
        self.action_redraw()

    def action_redraw(self) -> None:
        """Write every cell again, for a terminal that another program has written to."""
        self._cells.forget()
        self.screen.refresh()

    def action_suspend_process(self) -> None:
        """Return to the shell, whose `fg` continues; with the whole job, as the shell waits for each process of it."""
        if self._driver is not None and self._driver.can_suspend:
            os.killpg(0, signal.SIGTSTP)
        else:
            self.show_note("No shell can continue the screen after ctrl+z; q closes it.", "warning")

    def action_leave(self) -> None:
        self.exit()

    def on_key(self, event: Key) -> None:
        """Say what a key that does nothing may have been meant for."""
        keys = self.screen.active_bindings if self.screen_stack else {}
        if not event.is_printable or event.key in keys or self._notifications or "question_mark" not in keys:
            return
        pressed = event.character or event.key
        meant = keys.get(pressed.swapcase())
        words = f"{pressed.swapcase()} is {meant.binding.description}" if meant else "? shows all keys"
        self.show_note(f"{pressed} does nothing here; {words}.")

    def action_theme(self) -> None:
        """Switch between dark and light; does nothing without colours."""
        if self.theme != PLAIN.name:
            self.theme = self._dark if self.theme == LIGHT.name else LIGHT.name

    # input

    async def on_event(self, event: Event) -> None:
        """Queue keys, pastes and clicks: each is handled once everything is done that the one before has led to.

        Until the app can answer, all of them wait, but for those that leave it.
        """
        if not isinstance(event, InputEvent | Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        if self._input is None:
            self._input = asyncio.Queue()
            self.run_worker(self._handle_input(self._input))
        is_first = self._input.empty() and not self._is_held and len(self.screen_stack) < 2
        leaves = isinstance(event, Key) and (event.key == "ctrl+c" or (event.key == "q" and is_first))
        if leaves and not self._can_answer.is_set():
            self.action_leave()
        elif not isinstance(event, Key) or self._input.qsize() < MAX_WAITING_KEYS:
            self._input.put_nowait(event)

    async def _handle_input(self, events: asyncio.Queue[Event]) -> None:
        # Textual passes a key up the tree of widgets while the next one goes to whatever has the focus by then. Over a
        # slow line several keys arrive at once: of `/warmup` the letters would be taken as commands by the screen on
        # which `/` is about to open the search.
        await self._is_ready.wait()
        while True:
            event = await events.get()
            keys = self.screen.active_bindings if self.screen_stack and isinstance(event, Key) else {}
            bound = keys.get(getattr(event, "key", ""))
            if bound is None or bound.binding.action not in ("help", "leave"):
                self._is_held = True
                await self._can_answer.wait()
                self._is_held = False
            self.typed_s = event.time
            if self.screen_stack and not self._exit:  # else nothing is left to take it
                target = self._focused_node
                await super().on_event(event)
                if isinstance(event, Key | Paste):
                    await self._wait_until_done(target)
            events.task_done()

    @property
    def _focused_node(self) -> DOMNode:
        """The node that gets a key; the app itself while it closes and has no screen any more."""
        screens = self.screen_stack
        return (screens[-1].focused or screens[-1]) if screens else self

    async def _wait_until_done(self, target: DOMNode) -> None:
        """Wait until a key has gone up from `target` to the app, and what its action posts has too."""
        answered = False
        while not answered:
            for _ in range(2):
                for node in target.ancestors_with_self:
                    await _wait_for_queue(node)
                target = self._focused_node
            # A request may show a screen, which has to get ready before it can take the next key.
            answered = self._answered.is_set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.answer_limit_s):
                    await self._answered.wait()
            self._holding.clear()
            self._answered.set()

    # requests and tasks

    def run_task(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any, only: str = "") -> Worker[None]:
        """Run `work` in a task of its own, and cancel an older one with the same name `only`.

        A `BackendError` is shown as a notification.
        """
        return self.run_worker(partial(self._notify_errors, work, *args), group=only, exclusive=bool(only))

    async def _notify_errors(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        try:
            await work(*args)
        except BackendError as error:
            self.show_note(str(error), "error")
        except NoMatches:
            if self.is_running:  # else it closes, and the widgets are gone before the tasks
                raise

    def serve(self, request: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Run a request of the user as a task, unless the same one is under way.

        Input waits until it shows a screen or ends.
        """
        if request not in self._requests:
            self._requests.add(request)
            self._hold_input(request)
            self.run_task(self._serve, request, *args)

    async def _serve(self, request: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        _request.set(request)
        try:
            await request(*args)
        finally:
            self._requests.discard(request)
            self.let_input_through()

    async def ask(
        self, screen: Screen[Result], fill: Callable[[], Coroutine[Any, Any, object]] | None = None
    ) -> Result | None:
        """Show a screen for a request, in place of all notes, and return what it is dismissed with.

        Input waits until `fill` has ended; a `BackendError` of it closes the screen.
        """
        self.clear_notifications()  # they would cover it
        answer = self.push_screen(screen, wait_for_dismiss=True)
        if fill is not None:
            try:
                await fill()
            except BackendError:
                screen.dismiss(None)
                raise
        self.let_input_through()
        try:
            return await asyncio.shield(answer)
        finally:
            self._hold_input(_request.get())  # another screen may follow

    @property
    def is_in_use(self) -> bool:
        """Whether another screen covers the first one, or something is typed there: nothing may open over it."""
        return len(self.screen_stack) > 1 or isinstance(self.focused, Input)

    def _hold_input(self, request: object) -> None:
        """Let input wait for `request` to show a screen or to end, but not longer than `answer_limit_s`."""
        self._holding.add(request)
        self._answered.clear()

    def let_input_through(self) -> None:
        """Called by a request that takes a while: what is typed meanwhile is for the screen as it is."""
        # A request may end after the next one has begun, which is still to show its screen.
        self._holding.discard(_request.get())
        if not self._holding:
            self._answered.set()

    # start and end

    def freeze_startup_objects(self) -> None:
        """Collect garbage once after the first frame, and exclude what remains from later collections."""
        if not self.is_headless:
            # Imports and the first frame leave about 90,000 objects that live as long as the app. The collector does
            # not visit frozen ones: a full collection of them would take 20 ms in the middle of a frame.
            gc.collect()
            gc.freeze()
            gc.enable()

    def on_load(self) -> None:
        """End the program as on SIGHUP where a write to the terminal fails: Textual's thread would only print it."""

        def failed(thread: threading.ExceptHookArgs) -> None:
            if isinstance(thread.exc_value, OSError) and thread.exc_value.errno in LOST_TERMINAL:
                os.kill(os.getpid(), signal.SIGHUP)

        if not self.is_headless:
            threading.excepthook = failed

    def _fatal_error(self) -> None:
        """Print one sentence and write a report; Textual would print all local variables, secrets included."""
        from tuner_tui.runs.store.folder import state_dir

        if self._exception is not None and not self._exit_renderables:
            self._exit_renderables.append(Text(write_crash_report(self._exception, state_dir()), overflow="fold"))
        self._close_messages_no_wait()

    # notes

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
        """Show a notification in place of any other, unless it is shown already; `sentence` is no markup."""
        if any(shown.message == sentence for shown in self._notifications):
            return
        timeout_s = self.error_timeout_s if severity == "error" else self.note_timeout_s
        self.clear_notifications()
        self.notify(sentence, severity=severity, timeout=timeout_s, markup=False)


async def _wait_for_queue(pump: MessagePump) -> None:
    """Wait until `pump` has handled the messages that are in its queue now, or has ended."""
    done = asyncio.Event()
    if pump.call_later(done.set):
        waiting = asyncio.ensure_future(done.wait())
        await asyncio.wait([waiting, *filter(None, [pump._task])], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()


def write_crash_report(error: BaseException, folder: Path) -> str:
    """Write the traceback of `error` to a new file in `folder` (mode 0600) and return the sentence for the user.

    The traceback goes without the values of variables, which may hold the secrets of an environment.
    """
    from tuner_tui.core.redaction import redact_text

    cause = getattr(error, "error", error)  # a worker's failure wraps the error
    sentence = f"The screen failed: {type(cause).__name__}. This is a bug in tuner-tui; training runs continue."
    path = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    try:
        make_private(folder)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            where = f"tuner-tui {__version__}, textual {textual.__version__}, Python {platform.python_version()}"
            file.write(f"{where}\n\n{redact_text(''.join(traceback.format_exception(cause)))}")
    except OSError as refused:
        return f"{sentence} The report could not be written to {path}: {refused.strerror or refused}."
    return f"{sentence} The report is in {path}"
