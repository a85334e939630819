"""The first frame: the empty panels of a screen, written before Textual is imported, which then takes over."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tuner_tui.ui.palette import DARK_COLOURS, DARK_VARIABLES, has_many_colours, has_true_colour, wants_colour
from tuner_tui.ui.panels.arrangement import PAGES, Box, arrange, first_page, panel_title
from tuner_tui.ui.terminal.shell_modes import LEAVE_SCREEN, SHELL_MODES, STDIN, STDOUT, restore_terminal_on_signals

ENTER_SCREEN, HIDE_CURSOR = "\x1b[?1049h", "\x1b[?25l"


@contextmanager
def first_frame(panels: Callable[[int, int], Mapping[str, Box]], focused: str) -> Iterator[None]:
    """Take the terminal and show the `panels` of its size; give it back if what follows fails before Textual starts."""
    columns, rows = os.get_terminal_size(STDOUT)
    SHELL_MODES[:] = modes = termios.tcgetattr(STDIN)
    restore_terminal_on_signals(list(SHELL_MODES))
    try:
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
    rows -= 2  # below the status line, above the keys
    boxes = arrange(columns, rows, first_page(columns, rows), 0, has_run=False).boxes
    return {panel_title(page): box._replace(y=box.y + 1) for page, box in boxes.items() if page in PAGES}


def watch_panels(columns: int, rows: int) -> dict[str, Box]:
    """Return the boxes of `watch` by title, before anything is read."""
    jobs = Box(0, 6, columns, rows - 7)
    return {"GPUs": Box(0, 0, columns, 3), os.uname().nodename: Box(0, 3, columns, 3), "Jobs": jobs}


def draw_frame(panels: Mapping[str, Box], focused: str, columns: int, rows: int, environ: Mapping[str, str]) -> str:
    """Return what writes the borders and titles of `panels` on the background, in the colours of the dark theme."""
    blank, frame, title, focus = _looks(environ)
    output = blank + _write_lines(0, 0, [" " * columns] * rows)
    for name, (x, y, width, height) in panels.items():
        if width < len(name) + 6 or height < 2:
            continue
        edge, sides = "─" * (width - 2), f"│\x1b[{width - 2}C│"
        border, heading = (focus, focus) if name == focused or len(panels) == 1 else (frame, title)
        output += border + _write_lines(x, y, [f"╭{edge}╮", *[sides] * (height - 2), f"╰{edge}╯"])
        output += f"\x1b[1m{heading}{_write_lines(x + 2, y, [f' {name} '])}\x1b[22m"
    return output + "\x1b[m"


def _write_lines(x: int, y: int, lines: list[str]) -> str:
    return "".join(f"\x1b[{row};{x + 1}H{text}" for row, text in enumerate(lines, y + 1))


def _looks(environ: Mapping[str, str]) -> list[str]:
    """Return the colour sequences of background, borders, titles and the focus, as Rich chooses them."""
    if not wants_colour(environ):
        return [""] * 4
    from rich.color import Color, ColorSystem

    system = ColorSystem.EIGHT_BIT if has_many_colours(environ) else ColorSystem.STANDARD
    system = ColorSystem.TRUECOLOR if has_true_colour(environ) else system
    names = (DARK_COLOURS["background"], DARK_VARIABLES["frame"], DARK_COLOURS["foreground"], DARK_COLOURS["primary"])
    colours = [Color.parse(name).downgrade(system) for name in names]
    codes = [colour.get_ansi_codes(foreground=colour is not colours[0]) for colour in colours]
    return [f"\x1b[{';'.join(code)}m" for code in codes]
