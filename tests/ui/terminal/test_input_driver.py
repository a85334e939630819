"""The driver hands on what is typed, tells an escape from a sequence, and sleeps where nothing comes."""

from __future__ import annotations

import os
import pty
import signal
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread

import pytest_asyncio
from textual.events import Key
from textual.message import Message

from tuner_tui.ui.terminal.base_app import BaseApp
from tuner_tui.ui.terminal.input_driver import (
    PASTE_END,
    PASTE_START,
    PASTE_TIMEOUT_S,
    BlockingDriver,
    OpenPaste,
    WakeEvent,
    select_timeout_s,
)

LONGEST_S = 60


class Listening(BlockingDriver):
    """Keeps what it would hand to the app."""

    def __init__(self) -> None:
        super().__init__(BaseApp("dark", colour=True, ascii_only=False))
        self.heard: SimpleQueue[Message] = SimpleQueue()

    def process_message(self, message: Message) -> None:
        self.heard.put(message)

    def key(self) -> str:
        message = self.heard.get(timeout=LONGEST_S)
        assert isinstance(message, Key)
        return message.key


@pytest_asyncio.fixture
async def driver() -> AsyncIterator[tuple[Listening, int]]:
    """A driver on a terminal, and the end that somebody types at."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTSTP, signal.SIGCONT)}
    keyboard, terminal = pty.openpty()
    tty.setraw(terminal)
    driver = Listening()
    driver.fileno = terminal
    yield driver, keyboard
    for descriptor in (keyboard, terminal):
        os.close(descriptor)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@contextmanager
def listening(driver: Listening) -> Iterator[Thread]:
    thread = Thread(target=driver.run_input_thread)
    thread.start()
    try:
        yield thread
    finally:
        driver.exit_event.set()
        thread.join(LONGEST_S)


async def test_keys_are_handed_on(driver: tuple[Listening, int]) -> None:
    own, keyboard = driver
    with listening(own):
        os.write(keyboard, b"t\x1b[A\xc3\xa9")
        assert [own.key() for _ in range(3)] == ["t", "up", "é"]


async def test_an_escape_alone_is_a_key(driver: tuple[Listening, int]) -> None:
    own, keyboard = driver
    with listening(own):
        os.write(keyboard, b"\x1b")
        assert own.key() == "escape"


async def test_it_ends_while_it_waits_for_a_key(driver: tuple[Listening, int]) -> None:
    own, _ = driver
    with listening(own) as thread:
        own.exit_event.set()
        thread.join(LONGEST_S)
        assert not thread.is_alive()


def test_where_nothing_is_typed_it_waits_for_ever() -> None:
    assert select_timeout_s(float("inf")) is None
    assert select_timeout_s(0.0) is not None


def test_a_bell_that_was_cleared_rings_again() -> None:
    bell = WakeEvent()
    for _ in range(2):
        bell.set()
        bell.set()
        assert bell.is_set()
        bell.clear()
        assert not bell.is_set()


def test_a_paste_without_an_end_ends_when_keys_are_typed() -> None:
    paste = OpenPaste()
    assert paste.completed("\x1b[20", 0.0) == "\x1b[20"
    assert paste.completed("0~" + "a" * 100, 0.1) == "0~" + "a" * 100
    assert paste.is_open
    assert paste.completed("a" * 100, 5.0 * PASTE_TIMEOUT_S)[:6] == PASTE_END  # nothing came for long
    assert not paste.is_open
    assert paste.completed("q", 9.0) == "q"


def test_a_long_paste_that_goes_on_is_one() -> None:
    paste = OpenPaste()
    paste.completed(PASTE_START, 0.0)
    for number in range(20):
        assert paste.completed("a" * 100, number * PASTE_TIMEOUT_S / 2) == "a" * 100
    assert paste.completed("a\x1b[2", 10.0 * PASTE_TIMEOUT_S) == "a\x1b[2"
    assert paste.completed("01~", 10.1 * PASTE_TIMEOUT_S) == "01~"
    assert not paste.is_open


def test_typed_keys_do_not_keep_a_paste_open() -> None:
    paste = OpenPaste()
    paste.completed(PASTE_START + "a" * 100, 0.0)
    written = "".join(paste.completed("q", number * PASTE_TIMEOUT_S / 4) for number in range(1, 8))
    assert written.count(PASTE_END) == 1
    assert not paste.is_open
