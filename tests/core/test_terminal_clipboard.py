"""OSC 52, for the terminal itself and through multiplexers. The base64 of `héllo` is from RFC 4648's alphabet."""

from __future__ import annotations

import re
from base64 import b64decode

import pytest

from tuner_tui.core.terminal_sequences import MOST_BYTES, clipboard_sequence

XTERM = {"TERM": "xterm-256color"}


def test_the_terminal_gets_the_text_as_base64() -> None:
    assert clipboard_sequence("héllo", XTERM) == "\x1b]52;c;aMOpbGxv\a"


def test_tmux_passes_it_with_doubled_escapes() -> None:
    wrapped = clipboard_sequence("a", {**XTERM, "TMUX": "/tmp/tmux-0/default,1,0"})
    assert wrapped == "\x1bPtmux;\x1b\x1b]52;c;YQ==\a\x1b\\"


def test_screen_gets_short_pieces() -> None:
    text = "x" * 2000
    wrapped = clipboard_sequence(text, {**XTERM, "STY": "1.pts-0.box"}) or ""
    pieces = re.findall(r"\x1bP(.*?)\x1b\\", wrapped, re.DOTALL)
    assert max(map(len, pieces)) <= 768
    assert b64decode("".join(pieces).removeprefix("\x1b]52;c;").removesuffix("\a")).decode() == text


@pytest.mark.parametrize("environ", [{}, {"TERM": "dumb"}, {"TERM": "linux"}, {"TERM": "vt100"}])
def test_a_terminal_without_a_clipboard_gets_nothing(environ: dict[str, str]) -> None:
    assert clipboard_sequence("a", environ) is None


def test_too_long_a_text_is_not_cut() -> None:
    assert clipboard_sequence("x" * (MOST_BYTES + 1), XTERM) is None
