"""Keys as terminals send them."""

from __future__ import annotations

import pytest
from textual.events import Key
from textual.message import Message

from tuner_tui.ui.terminal.terminal_driver import InputParser


def keys_of(*parts: str) -> list[str]:
    """The keys of input that comes in `parts`, after which nothing comes for as long as a sequence may take."""
    parser, messages = InputParser(), list[Message]()
    for part in parts:
        messages += parser.feed(part)
    parser._timeout_time = 0.0 if parser._timeout_time is not None else None
    messages += parser.tick()
    return [message.key for message in messages if isinstance(message, Key)]


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("\x1bp", ["escape", "p"]),
        ("\x1bP", ["escape", "P"]),
        ("\x1b?", ["escape", "question_mark"]),
        ("\x1b\r", ["escape", "enter"]),
        ("\x1bé", ["escape", "é"]),
        ("\x1b\x1b", ["escape", "escape"]),
        ("3r\x1bq\x1b[B", ["3", "r", "escape", "q", "down"]),
    ],
)
def test_escape_and_a_key_that_come_together_are_two_keys(typed: str, keys: list[str]) -> None:
    assert keys_of(typed) == keys
    assert keys_of(*typed) == keys


@pytest.mark.parametrize("number", "12345")
def test_alt_and_a_digit_is_one_key_in_terminals_that_send_escape_for_alt(number: str) -> None:
    assert keys_of(f"\x1b{number}") == [f"alt+{number}"]


@pytest.mark.parametrize(
    ("typed", "key"), [("\x1b[A", "up"), ("\x1bOP", "f1"), ("\x1bb", "ctrl+left"), ("\x1b[1;3C", "alt+right")]
)
def test_sequences_stay_one_key(typed: str, key: str) -> None:
    assert keys_of(typed) == [key]
