"""The modes of the terminal as the shell left them, given back on signals that end the program. Imports no Textual."""

from __future__ import annotations

import os
import signal
import termios
import time
from contextlib import suppress
from types import FrameType
from typing import Any

STDIN, STDOUT = 0, 1
LEAVE_SCREEN = (
    b"\x1b[m\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l"
    b"\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""What Textual's driver writes when it stops: ends mouse reports and bracketed paste, shows the shell's screen."""
SHELL_MODES: list[Any] = []
"""Modes of the terminal before the first frame changed them, until Textual's driver has taken them over."""


def restore_terminal_on_signals(attributes: list[Any]) -> None:
    """Give the terminal back with `attributes` and exit on signals that end a program; trainings continue."""

    def leave(number: int, frame: FrameType | None) -> None:
        # At once and without the event loop, which may be blocked in a write to a terminal that is closed or stopped.
        with suppress(OSError, termios.error):
            os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)  # no frame after this
            if os.tcgetpgrp(STDIN) == os.getpgrp():  # not in the background, where the terminal is the shell's
                termios.tcsetattr(STDIN, termios.TCSANOW, attributes)
                _write_without_blocking(os.open("/dev/tty", os.O_WRONLY | os.O_NONBLOCK), LEAVE_SCREEN)
        os._exit(128 + number)  # what a shell reports for a process that a signal has ended

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, leave)


def _write_without_blocking(terminal: int, text: bytes) -> None:
    """Write `text`, or nothing to a terminal that takes none for two seconds; raises OSError where it is gone."""
    for _ in range(100):
        try:
            os.write(terminal, text)
        except BlockingIOError:  # also while a thread is in a write, of which the reader may have all bytes already
            time.sleep(0.02)
        else:
            return
