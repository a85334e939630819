"""The terminal: draws on standard output, and restores it on signals that end the program."""

from __future__ import annotations

import os
import signal
import sys
import termios
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

STDIN, STDOUT = 0, 1
LEAVE_SCREEN = (
    b"\x1b[m\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l"
    b"\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""What Textual's driver writes when it stops: ends mouse reports and bracketed paste, shows the shell's screen."""


class TerminalDriver(LinuxDriver):
    """Textual's driver for Linux on standard output: standard error may be a file (`tuner-tui 2>log`)."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._file = sys.__stdout__ or self._file
        self._redraw = partial(app.call_later, app.run_action, "app.redraw")
        self._shell_modes: list[Any] | None = None

    def start_application_mode(self) -> None:
        """Handle signals from the first change of the terminal on."""
        with suppress(termios.error):
            if self._shell_modes is None:
                self._shell_modes = termios.tcgetattr(STDIN)
                restore_terminal_on_signals(self._shell_modes)
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.attrs_before = self._shell_modes  # what it read now may be the raw mode

    def write(self, data: str) -> None:
        """Write to the terminal unless it is the shell's: everything is written again afterwards."""
        if self._writer_thread is not None:
            super().write(data)

    def close(self) -> None:
        """End the thread that writes: what is written later is not queued for it."""
        super().close()
        self._writer_thread = None

    # Both in the event loop: a handler may interrupt another one, or a write that holds the lock of the writer's queue.

    def _sigtstp_application(self, *args: object) -> None:
        self._loop.call_soon_threadsafe(super()._sigtstp_application)

    def _sigcont_application(self, *args: object) -> None:
        self._loop.call_soon_threadsafe(self._take_terminal)

    def _take_terminal(self) -> None:
        if self._writer_thread is not None:  # after SIGSTOP, as by Slurm's suspend, the terminal was not restored
            self.suspend_application_mode()
        self.resume_application_mode()
        self._redraw()


def restore_terminal_on_signals(attributes: list[Any]) -> None:
    """Give the terminal back with `attributes` and exit on signals that end a program; trainings continue."""

    def leave(number: int, frame: FrameType | None) -> None:
        # At once and without the event loop, which may be blocked in a write to a terminal that is closed or stopped.
        with suppress(OSError, termios.error):
            os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)  # no frame after this
            if os.tcgetpgrp(STDIN) == os.getpgrp():  # not in the background, where the terminal is the shell's
                os.write(os.open("/dev/tty", os.O_WRONLY | os.O_NONBLOCK), LEAVE_SCREEN)
                termios.tcsetattr(STDIN, termios.TCSANOW, attributes)
        os._exit(128 + number)  # what a shell reports for a process that a signal has ended

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, leave)
