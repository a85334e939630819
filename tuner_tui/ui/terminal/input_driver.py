"""A Linux terminal driver that sleeps until there is input.

Textual's own driver polls for input ten times a second: 0.2 % of a core, a fifth of what the whole screen costs.
"""

from __future__ import annotations

import os
import sys
import time
from codecs import getincrementaldecoder
from selectors import EVENT_READ, DefaultSelector
from threading import Event
from typing import TYPE_CHECKING

from textual._xterm_parser import XTermParser
from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from textual.app import App

READ_BYTES = 4096
ESCAPE_POLL_S = 0.1
"""Poll interval while an escape sequence may be incomplete: a lone escape is a key once nothing follows it."""


class WakeEvent(Event):
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


class BlockingDriver(LinuxDriver):
    """Textual's Linux driver with blocking reads, which draws on standard output.

    Textual draws on standard error, which may be redirected to a file (`tuner-tui 2>log`).
    """

    def __init__(
        self, app: App[object], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self.exit_event = self._wake_event = WakeEvent()
        self._file = sys.__stdout__ or self._file

    def run_input_thread(self) -> None:
        """Parse input and pass it on until the driver exits or the terminal is closed."""
        parser, decode = XTermParser(self._debug), getincrementaldecoder("utf-8")("replace").decode
        last_input_s = float("-inf")
        with DefaultSelector() as selector:
            for descriptor in (self.fileno, self._wake_event.descriptor):
                selector.register(descriptor, EVENT_READ)
            while not self.exit_event.is_set():
                ready = {key.fd for key, _ in selector.select(select_timeout_s(time.monotonic() - last_input_s))}
                if self.fileno in ready:
                    data = os.read(self.fileno, READ_BYTES)
                    if not data:
                        return
                    last_input_s = time.monotonic()
                    for message in parser.feed(decode(data)):
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)


def select_timeout_s(since_input_s: float) -> float | None:
    """Seconds to wait for the next byte, given the seconds since the last one; None waits without a limit."""
    return ESCAPE_POLL_S if since_input_s < ESCAPE_DELAY + 2 * ESCAPE_POLL_S else None
