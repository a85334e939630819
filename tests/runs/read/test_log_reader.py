"""Windows of logs of any size and content."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner_tui.runs.read.log_reader import (
    CHUNK_BYTES,
    LINE_BYTES,
    MAX_LINE_CHARACTERS,
    LogReader,
    LogWindow,
    clean_line,
)

LINES = st.lists(st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=12), max_size=40)


def log(tmp_path: Path, content: bytes) -> LogReader:
    path = tmp_path / "output.log"
    path.write_bytes(content)
    return LogReader(path)


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    reader = LogReader(tmp_path / "output.log")
    assert reader.tail(10) == LogWindow()
    assert reader.window(50, 10) == LogWindow()
    assert reader.search("x", 0).anchor is None


def test_the_tail(tmp_path: Path) -> None:
    window = log(tmp_path, b"one\ntwo\nthree\n").tail(2)
    assert window == LogWindow(("two", "three"), (4, 8), 4, 14, 14, False, True, False)


@settings(deadline=None)
@given(LINES, st.integers(1, 7))
def test_pages_forwards_and_backwards_show_every_line_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], page: int
) -> None:
    content = "".join(line + "\n" for line in lines).encode()
    reader = log(tmp_path_factory.mktemp("log"), content)
    forwards: list[str] = []
    anchor = 0
    while anchor < len(content):
        window = reader.window(anchor, page)
        forwards += window.lines
        anchor = window.end
    backwards: list[str] = []
    anchor = len(content)
    while anchor > 0:
        window = reader.before(anchor, page)
        backwards = [*window.lines, *backwards]
        anchor = window.start
    assert forwards == backwards == lines


def test_lines_longer_than_a_chunk(tmp_path: Path) -> None:
    bar = b"".join(b"\r%7d" % n for n in range(CHUNK_BYTES // 4))
    reader = log(tmp_path, b"before\n" + bar + b"\nafter\n")
    assert reader.tail(3).lines == ("before", f"{CHUNK_BYTES // 4 - 1:7d}", "after")
    assert reader.window(0, 3).lines == reader.tail(3).lines
    assert len(bar) > CHUNK_BYTES > LINE_BYTES


@pytest.mark.parametrize("backwards", [False, True])
def test_search(tmp_path: Path, backwards: bool) -> None:
    reader = log(tmp_path, b"an Error here\nnothing\nerror again\nend\n")
    position = reader.search("ERROR", 37 if backwards else 0, backwards=backwards)
    assert (position.anchor, position.complete) == (22 if backwards else 0, True)


def test_search_across_chunks(tmp_path: Path) -> None:
    filler = b"x" * (CHUNK_BYTES - 3) + b"needle\n"
    reader = log(tmp_path, filler + b"y\n" * CHUNK_BYTES)
    assert reader.search("needle", CHUNK_BYTES - 3).anchor == 0
    assert reader.search("needle", CHUNK_BYTES - 2).anchor is None
    assert reader.search("needle", sys.maxsize, backwards=True).anchor == 0


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain", "plain"),
        (b" 10%\r 20%\r 30%", " 30%"),
        (b" 10%\r 20%\r", " 20%"),
        (b"\r\r\r", ""),
        (b"windows\r", "windows"),
        (b"\x1b[31mred\x1b[0m \x1b[1;38;5;9mbold", "red bold"),
        (b"\x1b]0;title\x07text", "text"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b[2J\x1b[Hhome", "home"),
        (b"\x1bPq#0;2;0\x1b\\sixel", "sixel"),
        (b"cut \x1b[3", "cut "),
        (b"bell\x07 null\x00 back\x08space", "bell null backspace"),
        (b"\xff\xfe bad", "�� bad"),
        ("über ✓".encode(), "über ✓"),
        ("a\u202ebc\u2066d\u200b".encode(), r"a\u202ebc\u2066d\u200b"),
        (b"a\tb", "a       b"),
        (b"\xc2\x9b31m", "31m"),
    ],
)
def test_what_reaches_the_terminal(raw: bytes, text: str) -> None:
    assert clean_line(raw).rstrip() == text.rstrip()


@given(st.binary(max_size=300))
def test_no_bytes_reach_the_terminal_raw(raw: bytes) -> None:
    text = clean_line(raw)
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in text)
    text.encode("utf-8")


def test_a_wide_line_is_cut() -> None:
    text = clean_line(b"x" * 100_000)
    assert len(text) == MAX_LINE_CHARACTERS
    assert text.endswith("…")
