"""The input of the terminal: a driver that sleeps until there is some, and keys that are handled one at a time.

Textual's own driver for Linux polls for input ten times a second: 0.2 % of a core, a fifth of what the whole screen
costs. It starts a second time on a SIGCONT that follows no SIGTSTP, as after Slurm's suspend, and takes an error of a
vanished terminal for a bug.

Textual passes a key up the tree of widgets, and then what its action posts, while the next key goes to whatever has the
focus by then. Of two quick keys the second is so taken by the screen over which the first is about to open a dialog.
`OrderedInput` waits until all of this is done.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import threading
import time
import tty
from codecs import getincrementaldecoder
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING, Any, Protocol, cast

from textual._xterm_parser import XTermParser
from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Event, Key, MouseEvent, MouseUp, Paste

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from textual.app import App
    from textual.dom import DOMNode
    from textual.message import Message
    from textual.message_pump import MessagePump

READ_BYTES = 4096
ESCAPE_POLL_S = 0.1
"""Poll interval while an escape sequence may be incomplete: a lone escape is a key once nothing follows it."""

KEY_BURST, KEYS_PER_S = 256, 100.0
"""More keys than a person types: text pasted without brackets, or replies of a terminal. The rest is dropped."""


PASTE_START, PASTE_END = "\x1b[200~", "\x1b[201~"
PASTE_TIMEOUT_S, TYPED_CHARACTERS = 1.0, 16
"""A paste without an end would swallow every key: it ends once only so few characters come at a time."""


class OpenPaste:
    """Follows whether the input is inside a bracketed paste, and ends one whose end does not come."""

    def __init__(self) -> None:
        self.is_open = False
        self._at_s = 0.0
        self._rest = ""

    def completed(self, text: str, now_s: float) -> str:
        """The text to parse: what was read, after the end of a paste that is overdue."""
        # A paste is overdue once its last long piece is a second old. Single keys do not count as pieces: whoever is
        # locked out by a lost end presses keys, and these must not keep the paste open. The rest of the text before is
        # kept, as a start or an end may be cut in two by a read.
        overdue = self.is_open and now_s - self._at_s >= PASTE_TIMEOUT_S
        if not overdue and (not self.is_open or len(text) >= TYPED_CHARACTERS):
            self._at_s = now_s
        known = self._rest + text
        start, end = known.rfind(PASTE_START), known.rfind(PASTE_END)
        self.is_open = (self.is_open and not overdue and end < 0) if start < 0 else start > end
        self._rest = known[-len(PASTE_END) + 1 :]
        return PASTE_END + text if overdue else text


class WakeEvent(threading.Event):
    """An event that a selector can wait for: `descriptor` is readable between `set` and `clear`."""

    def __init__(self) -> None:
        super().__init__()
        self.descriptor, self._write_end = os.pipe()

    def set(self) -> None:
        """Set the event and wake up the selectors that wait for it."""
        if not self.is_set():
            os.write(self._write_end, b"!")
        super().set()

    def clear(self) -> None:
        """Reset the event."""
        if self.is_set():
            os.read(self.descriptor, 1)
        super().clear()


class TerminalOwner(Protocol):
    """What the driver calls on its app."""

    def call_at_terminal_start(self) -> None: ...

    def call_when_terminal_is_lost(self) -> None: ...

    def action_redraw(self) -> None: ...


class BlockingDriver(LinuxDriver):
    """Textual's Linux driver with blocking reads, which draws on standard output.

    Textual draws on standard error, which may be redirected to a file (`tuner-tui 2>log`).
    """

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self.exit_event = self._wake_event = WakeEvent()
        self._file = sys.__stdout__ or self._file
        self._owner: TerminalOwner = cast("TerminalOwner", app)
        self._keys_left, self._keys_at_s = float(KEY_BURST), time.monotonic()

    def start_application_mode(self) -> None:
        """Handle signals from the first change of the terminal on."""
        self._owner.call_at_terminal_start()
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def write(self, data: str) -> None:
        """Write to the terminal; nothing is written after it is gone."""
        if self._writer_thread is None or self._writer_thread.is_alive():
            super().write(data)

    def _sigcont_application(self, *_: object) -> None:
        if self._must_signal_resume:
            super()._sigcont_application()
        else:  # stopped by SIGSTOP: the terminal was not restored, but others may have used it
            self._loop.call_soon_threadsafe(self._take_terminal_again)

    def _take_terminal_again(self) -> None:
        """Set the modes of the terminal again and repaint; the one to restore at the end stays as it was."""
        try:
            if self._writer_thread is None or os.tcgetpgrp(self.fileno) != os.getpgrp():
                return  # in the background: `fg` sends SIGCONT again
            attributes = termios.tcgetattr(self.fileno)
            attributes[tty.LFLAG] = self._patch_lflag(attributes[tty.LFLAG])
            attributes[tty.IFLAG] = self._patch_iflag(attributes[tty.IFLAG])
            termios.tcsetattr(self.fileno, termios.TCSANOW, attributes)
        except (OSError, termios.error):
            return
        self.write("\x1b[?1049h\x1b[?25l\x1b[?1004h")
        self._enable_mouse_support()
        self._enable_bracketed_paste()
        self._disable_line_wrap()
        self._owner.action_redraw()

    def process_message(self, message: Message) -> None:
        """Pass a message on, unless more keys arrive than a person types."""
        if isinstance(message, Key):
            now = time.monotonic()
            # A token bucket: it refills at `KEYS_PER_S`, holds `KEY_BURST` and each key takes one. A key that finds it
            # empty is dropped.
            self._keys_left = min(float(KEY_BURST), self._keys_left + (now - self._keys_at_s) * KEYS_PER_S)
            self._keys_at_s = now
            if self._keys_left < 1:
                return
            self._keys_left -= 1
        super().process_message(message)

    def run_input_thread(self) -> None:
        """Parse input and pass it on until the driver exits or the terminal is closed."""
        parser, decode = XTermParser(self._debug), getincrementaldecoder("utf-8")("replace").decode
        paste = OpenPaste()
        last_input_s = float("-inf")
        with DefaultSelector() as selector:
            for descriptor in (self.fileno, self._wake_event.descriptor):
                selector.register(descriptor, EVENT_READ)
            while not self.exit_event.is_set():
                timeout_s = PASTE_TIMEOUT_S if paste.is_open else select_timeout_s(time.monotonic() - last_input_s)
                ready = {key.fd for key, _ in selector.select(timeout_s)}
                data = b""
                if self.fileno in ready:
                    with suppress(OSError):  # the terminal is gone
                        data = os.read(self.fileno, READ_BYTES)
                    if not data:
                        self._owner.call_when_terminal_is_lost()
                        return
                    last_input_s = time.monotonic()
                text = paste.completed(decode(data), time.monotonic())
                if text:
                    for message in parser.feed(text):
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)


def select_timeout_s(since_input_s: float) -> float | None:
    """Seconds to wait for the next byte, given the seconds since the last one; None waits without a limit."""
    return ESCAPE_POLL_S if since_input_s < ESCAPE_DELAY + 2 * ESCAPE_POLL_S else None


MAX_WAIT_S = 2.0
"""How long input waits for a request of the user that hangs, such as one that reads a disk which is gone."""
PASSES = 2
"""A key goes up the tree to the app, which runs the action; what the action posts goes up in the second pass."""
Request = Callable[..., Any]
_served: ContextVar[Request | None] = ContextVar("_served", default=None)


class UserRequests:
    """Requests of the user under way. Input waits for one until it shows a screen, and after that until it ends."""

    def __init__(self) -> None:
        self._unanswered: set[Request | None] = set()
        self._awaited: set[Request | None] = set()
        self._answered = asyncio.Event()

    def accept(self, request: Request) -> bool:
        """Return whether to serve a request: not if the same one has no answer yet."""
        if request in self._unanswered:
            return False
        self._unanswered.add(request)
        self._awaited.add(request)
        return True

    async def serve(self, request: Request, work: Awaitable[None]) -> None:
        """Do the work of an accepted request."""
        _served.set(request)
        try:
            await work
        finally:
            self.answer()

    def answer(self) -> None:
        """Let input through: the request that calls this has shown a screen, or a note that it takes a while."""
        self._unanswered.discard(_served.get())
        self._awaited.discard(_served.get())
        self._answered.set()

    def resume(self) -> None:
        """The screen of the request that calls this is gone, and another one may follow."""
        if (request := _served.get()) is not None:
            self._unanswered.add(request)
            self._awaited.add(request)

    async def all_answered(self) -> bool:
        """Wait until no request is awaited. Returns whether one was."""
        waited = bool(self._awaited)
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                while self._awaited:
                    self._answered.clear()
                    await self._answered.wait()
        except TimeoutError:
            self._awaited.clear()
        return waited


class OrderedInput:
    """Hands on each event with `hand_on` once everything is done that the one before led to."""

    def __init__(self, app: App[Any], requests: UserRequests, hand_on: Callable[[Event], Awaitable[None]]) -> None:
        self._app = app
        self._requests = requests
        self._hand_on = hand_on
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._started = False
        self.unhandled = 0
        """Events that wait, or whose consequences are not done."""

    def put(self, event: Event) -> None:
        """Add an event that arrived."""
        self.unhandled += 1
        self._events.put_nowait(event)
        if not self._started:
            self._started = True
            self._app.run_worker(self._hand_on_all(), exit_on_error=True)

    async def _hand_on_all(self) -> None:
        while True:
            event = await self._events.get()
            if not self._app._exit and self._app.screen_stack:  # else nothing is left to take it
                target = self._target(event)
                await self._hand_on(event)
                if isinstance(event, Key | Paste | MouseUp):
                    await self._all_done(target)
            self.unhandled -= 1

    def _target(self, event: Event) -> DOMNode:
        from textual.errors import NoWidget

        if isinstance(event, MouseEvent):
            with suppress(NoWidget):
                return self._app.get_widget_at(event.x, event.y)[0]
        return self._focused()

    def _focused(self) -> DOMNode:
        """The node that gets a key; the app itself while it closes and has no screen any more."""
        screens = self._app.screen_stack
        return (screens[-1].focused or screens[-1]) if screens else self._app

    async def _all_done(self, target: DOMNode) -> None:
        # Each pass waits until every node from the focus up to the app has emptied its queue. If a request of the user
        # was awaited meanwhile, it may have shown a screen, whose focus is another one: the passes begin again.
        waited = True
        while waited:
            for _ in range(PASSES):
                await _pass_up(target.ancestors_with_self)
                target = self._focused()
            waited = await self._requests.all_answered()


async def _pass_up(pumps: Sequence[MessagePump]) -> None:
    """Wait until each of `pumps` has handled what was in its queue when the one before had, or has ended."""
    for pump in pumps:
        done = asyncio.get_running_loop().create_future()
        if pump.call_later(partial(_finish, done)):
            await asyncio.wait([done, *filter(None, [pump._task])], return_when=asyncio.FIRST_COMPLETED)


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
