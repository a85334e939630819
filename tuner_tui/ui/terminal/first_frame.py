"""The first frame: the empty panels of a screen, written before Textual is imported, which then takes over."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from tuner_tui.ui.palette import DARK_COLOURS, DARK_VARIABLES, has_many_colours, has_true_colour, wants_colour
from tuner_tui.ui.panels.arrangement import PAGES, Box, arrange, panel_title

STDIN, STDOUT = 0, 1
LEAVE_SCREEN = (
    b"\x1b[m\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l"
    b"\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""What Textual's driver writes when it stops: ends mouse reports and bracketed paste, shows the shell's screen."""
ENTER_SCREEN, HIDE_CURSOR = "\x1b[?1049h", "\x1b[?25l"
SHELL_MODES: list[Any] = []
"""Modes of the terminal before the first frame changed them, until Textual's driver has taken them over."""


@contextmanager
def first_frame(panels: Callable[[int, int], Mapping[str, Box]], focused: str) -> Iterator[None]:
    """Take the terminal and show the `panels` of its size; give it back if what follows fails before Textual starts."""
    columns, rows = os.get_terminal_size(STDOUT)
    SHELL_MODES[:] = termios.tcgetattr(STDIN)
    restore_terminal_on_signals(list(SHELL_MODES))
    try:
        modes = termios.tcgetattr(STDIN)
        modes[0] &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
        modes[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
        termios.tcsetattr(STDIN, termios.TCSANOW, modes)  # keys typed from here on are read by Textual
        frame = draw_frame(panels(columns, rows), focused, columns, rows, os.environ)
        print(ENTER_SCREEN, HIDE_CURSOR, frame, sep="", end="", file=sys.__stdout__, flush=True)  # `stdout` escapes it
        yield
    finally:
        if SHELL_MODES:
            os.write(STDOUT, LEAVE_SCREEN)
            termios.tcsetattr(STDIN, termios.TCSANOW, SHELL_MODES)


def screen_panels(columns: int, rows: int) -> dict[str, Box]:
    """Return the boxes of the main screen by title, before anything is read."""
    boxes = arrange(columns, rows - 2, PAGES[0], 0, has_run=False).boxes  # below the status line, above the keys
    return {panel_title(page): box._replace(y=box.y + 1) for page, box in boxes.items() if page in PAGES}


def watch_panels(columns: int, rows: int) -> dict[str, Box]:
    """Return the boxes of `watch` by title, before anything is read."""
    jobs = Box(0, 6, columns, rows - 7)
    return {"GPUs": Box(0, 0, columns, 3), os.uname().nodename: Box(0, 3, columns, 3), "Jobs": jobs}


def draw_frame(panels: Mapping[str, Box], focused: str, columns: int, rows: int, environ: Mapping[str, str]) -> str:
    """Return what writes the borders and titles of `panels` on the background, in the colours of the dark theme."""
    blank, frame, title, focus = _looks(environ)
    output = blank + "".join(f"\x1b[{y + 1};1H{' ' * columns}" for y in range(rows))
    for name, (x, y, width, height) in panels.items():
        top = f"╭─ {name} ".ljust(width - 1, "─") + "╮"
        if width < len(name) + 6 or height < 2:
            continue
        border, heading = (focus, f"\x1b[1m{focus}") if name == focused else (frame, f"\x1b[1m{title}")
        output += f"{border}\x1b[{y + 1};{x + 1}H{top}"
        output += "".join(f"\x1b[{line};{x + 1}H│\x1b[{line};{x + width}H│" for line in range(y + 2, y + height))
        output += f"\x1b[{y + height};{x + 1}H╰{'─' * (width - 2)}╯{heading}\x1b[{y + 1};{x + 3}H {name} \x1b[22m"
    return output + "\x1b[m"


def _looks(environ: Mapping[str, str]) -> list[str]:
    """Return the colour sequences of background, borders, titles and the focus, as Rich chooses them."""
    if not wants_colour(environ):
        return [""] * 4
    from rich.color import Color, ColorSystem

    system = ColorSystem.EIGHT_BIT if has_many_colours(environ) else ColorSystem.STANDARD
    system = ColorSystem.TRUECOLOR if has_true_colour(environ) else system

    def look(colour: str, foreground: bool = True) -> str:
        return f"\x1b[{';'.join(Color.parse(colour).downgrade(system).get_ansi_codes(foreground))}m"

    names = (DARK_VARIABLES["frame"], DARK_COLOURS["foreground"], DARK_COLOURS["primary"])
    return [look(DARK_COLOURS["background"], foreground=False), *map(look, names)]


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
