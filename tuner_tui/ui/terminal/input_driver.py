"""A Linux terminal driver that sleeps until there is input.

Textual's own driver polls for input ten times a second: 0.2 % of a core, a fifth of what the whole screen costs."""

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
"""While half a sequence may be on its way: an escape alone is a key once nothing has followed it for a while."""


class WakeEvent(Event):
    """An event that a selector can wait for as well: `descriptor` is readable from `set` until `clear`."""

    def __init__(self) -> None:
        super().__init__()
        self.descriptor, self._other_end = os.pipe()

    def set(self) -> None:
        """Set, and wake who waits."""
        if not self.is_set():
            os.write(self._other_end, b"!")
        super().set()

    def clear(self) -> None:
        """As it was before."""
        if self.is_set():
            os.read(self.descriptor, 1)
        super().clear()


class BlockingDriver(LinuxDriver):
    """Textual's driver for Linux, but for how it waits, and that it draws on standard output.

    Standard error may be a file (`tuner-tui 2>log`), standard output is the terminal.
    """

    def __init__(
        self, app: App[object], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self.exit_event = self._bell = WakeEvent()
        self._file = sys.__stdout__ or self._file

    def run_input_thread(self) -> None:
        """Hand on what is typed, until the driver ends or the terminal is gone."""
        parser, decode = XTermParser(self._debug), getincrementaldecoder("utf-8")("replace").decode
        typed_s = float("-inf")
        with DefaultSelector() as selector:
            for descriptor in (self.fileno, self._bell.descriptor):
                selector.register(descriptor, EVENT_READ)
            while not self.exit_event.is_set():
                ready = {key.fd for key, _ in selector.select(select_timeout_s(time.monotonic() - typed_s))}
                if self.fileno in ready:
                    data = os.read(self.fileno, READ_BYTES)
                    if not data:
                        return
                    typed_s = time.monotonic()
                    for message in parser.feed(decode(data)):
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)


def select_timeout_s(since_typed_s: float) -> float | None:
    """How long to wait for the next byte, by how long ago the last one came; None: until it comes."""
    return ESCAPE_POLL_S if since_typed_s < ESCAPE_DELAY + 2 * ESCAPE_POLL_S else None
