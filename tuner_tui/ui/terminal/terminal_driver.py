"""The terminal: draws on standard output, each frame in one write, and reads what is pasted as text."""

from __future__ import annotations

import os
import re
import sys
import termios
from codecs import getincrementaldecoder
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from select import select
from typing import Any

from textual._ansi_sequences import SYNC_END, SYNC_START
from textual._time import get_time
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key, Paste
from textual.message import Message

from tuner_tui.core.procfs import read_stat
from tuner_tui.ui.terminal.first_frame import ENTER_SCREEN
from tuner_tui.ui.terminal.shell_modes import SHELL_MODES, STDIN, STDOUT, restore_terminal_on_signals

INPUT_BYTES = 1 << 12
FRAME_BYTES = 1 << 20
"""More than any frame, so that each is one write(2)."""
ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b]*\x07?|.?)", re.DOTALL)


ALT_KEY = re.compile(r"\x1b[1-5]")
"""What shows a page; the other keys with alt have no meaning."""
AFTER_ESCAPE = re.compile(r"\x1b[^\x00-\x1f\x7fOPX\[\]^_bf]")
"""Not the start of a sequence, and not how terminals send a move by a word."""


class InputParser(XTermParser):
    """Textual's parser of input, which would take what follows an escape sequence in pasted text for keys."""

    _newest = ""
    """The newest input, which may be a part of the start of a paste."""
    _pasted: str | None = None
    """The text of a paste that has not ended yet."""

    def feed(self, data: str) -> Iterable[Message]:
        while data:
            if self._pasted is not None:
                text, end, data = (self._pasted + data).partition(BRACKETED_PASTE_END)
                self._pasted = None if end else text
                if end:
                    yield Paste(ESCAPE_SEQUENCE.sub("", text).replace("\x00", ""))
                continue
            fed, text = len(self._newest), self._newest + data
            start = text.find(BRACKETED_PASTE_START)
            if start < 0:
                plain, data, self._newest = data, "", text[1 - len(BRACKETED_PASTE_START) :]
            else:
                # Of a start that comes in two parts Textual has the first: it gets a whole one, and its end.
                split = BRACKETED_PASTE_START[fed - start :] + BRACKETED_PASTE_END
                plain = split if start < fed else text[fed:start]
                data, self._newest, self._pasted = text[start + len(BRACKETED_PASTE_START) :], "", ""
            yield from super().feed(plain) if plain else ()

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[Key]:
        """Take escape and a key that come together for two keys, as they are over a slow line or of a quick hand."""
        if ALT_KEY.fullmatch(sequence):
            return [Key(f"alt+{sequence[1]}", None)]
        if not alt and not AFTER_ESCAPE.fullmatch(sequence):
            return super()._sequence_to_key_events(sequence)
        return [Key("escape", "\x1b"), *super()._sequence_to_key_events(sequence[-1])]


class TerminalDriver(LinuxDriver):
    """Textual's driver for Linux on standard output: standard error may be a file (`tuner-tui 2>log`)."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        if sys.__stdout__ is not None:
            self._file = open(STDOUT, "w", FRAME_BYTES, sys.__stdout__.encoding, sys.__stdout__.errors, closefd=False)  # noqa: SIM115
        self._input_end = os.eventfd(0)
        self._frame = ""
        self._skipped = ""
        self._redraw = partial(app.call_later, app.run_action, "app.redraw")
        self._shell_modes: list[Any] | None = None

    def start_application_mode(self) -> None:
        """Handle signals from the first change of the terminal on."""
        with suppress(termios.error):
            if self._shell_modes is None:
                self._shell_modes = list(SHELL_MODES) or termios.tcgetattr(STDIN)
                self._skipped = ENTER_SCREEN if SHELL_MODES else ""  # would clear the first frame
                SHELL_MODES.clear()
                restore_terminal_on_signals(self._shell_modes)
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.attrs_before = self._shell_modes  # what it read now may be the raw mode

    def write(self, data: str) -> None:
        """Write to the terminal unless it is the shell's: everything is written again afterwards.

        What belongs to one frame is written together.
        """
        if self._writer_thread is None:
            return
        if data == self._skipped:
            self._skipped = ""
            return
        self._frame += data
        if data == SYNC_END or not self._frame.startswith(SYNC_START):
            super().write(self._frame)
            self._frame = ""

    def run_input_thread(self) -> None:
        """Wait for input until it ends; Textual wakes ten times a second to look whether it does."""
        parser, decode = InputParser(self._debug), getincrementaldecoder("utf-8")().decode
        while not self.exit_event.is_set():
            decided_s = parser._timeout_time  # when what has come is the key Escape and not the start of a sequence
            wait_s = None if decided_s is None else max(0.0, decided_s - get_time())
            ready = select([self.fileno, self._input_end], (), (), wait_s)[0]
            if self._input_end in ready:
                os.eventfd_read(self._input_end)
                self.exit_event.wait(1.0)  # Textual sets it now
            elif ready:
                if not (data := os.read(self.fileno, INPUT_BYTES)):  # the end of a pipe or file
                    return
                for message in parser.feed(decode(data)):
                    self.process_message(message)
            for message in parser.tick():
                self.process_message(message)

    def disable_input(self) -> None:
        if self._key_thread is not None and self._key_thread.is_alive():
            os.eventfd_write(self._input_end, 1)
        super().disable_input()

    def close(self) -> None:
        """End the thread that writes: what is written later is not queued for it."""
        super().close()
        self._writer_thread = None

    @property
    def can_suspend(self) -> bool:
        """Whether a shell has started the program as a job, which it can continue."""
        leader = read_stat(os.getpgrp())
        shell = None if leader is None else read_stat(leader.parent)
        return leader is not None and shell is not None and shell.session == leader.session

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
