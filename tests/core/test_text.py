"""Sentences broken into lines."""

from __future__ import annotations

import re
from base64 import b64decode

import pytest

from tuner_tui.core.text import MOST_BYTES, clipboard_sequence, format_observed, wrap_text


def test_a_path_or_an_option_with_hyphens_stays_whole() -> None:
    path = "/data/run-of-today/train-part-1.jsonl"
    lines = wrap_text(f"The data {path} is not there; see --interpreter PATH", 40)
    assert lines == ["The data", f"{path} is", "not there; see --interpreter PATH"]


def test_a_word_longer_than_a_line_is_broken_where_that_is_wanted() -> None:
    assert wrap_text("abcdefgh", 5) == ["abcde", "fgh"]
    assert wrap_text("abcdefgh", 5, break_long_words=False) == ["abcdefgh"]


def test_the_indents_of_first_and_further_lines() -> None:
    assert wrap_text("a b", 4, initial_indent="> ", subsequent_indent="  ") == ["> a", "  b"]


def test_an_observed_value_is_shown_in_words() -> None:
    seen = {"flash": True, "math": False, "names": ["q_proj", "v_proj"], "more": None, "empty": {}}
    assert format_observed(seen) == "flash on, math off, names q_proj, v_proj, more –, empty none"


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
