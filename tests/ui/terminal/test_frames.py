"""The first frame is there before Textual, and no frame is torn, each with the whole program on a real terminal."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.terminal import FakeTerminal
from tests.fakes.ui_backend import FakeBox
from tests.ui.pilots import screen_text, until
from tests.ui.terminal.test_terminal_comes_back import LEFT, Watch
from tests.ui.test_reading import Gates
from tuner_tui.ui.screens.watch import WatchScreen
from tuner_tui.ui.terminal.first_frame import draw_frame, screen_panels, watch_panels
from tuner_tui.ui.watch_app import WatchApp

SYNC_QUERY, SYNC_ANSWER = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
SYNC_START, SYNC_END = b"\x1b[?2026h", b"\x1b[?2026l"
WITHOUT_TEXTUAL = "import sys; sys.modules['textual'] = None; from tuner_tui.cli.main import main; main()"
WITHOUT_END = """
import signal
from tuner_tui.ui.terminal.first_frame import first_frame, watch_panels
with first_frame(watch_panels, "Jobs"):
    signal.pause()
"""
SIZES = [(120, 40), (80, 24), (200, 60), (100, 30), (60, 15), (170, 46), (119, 31)]
_NO_TEXT = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")


@pytest.mark.parametrize(("words", "title"), [((), "1 Settings"), (("demo",), "2 Live"), (("watch",), "Jobs")])
def test_the_first_frame_needs_no_textual_and_the_terminal_comes_back(
    tmp_path: Path, words: tuple[str, ...], title: str
) -> None:
    with Watch(tmp_path, *words, program=[sys.executable, "-c", WITHOUT_TEXTUAL]) as terminal:
        output = terminal.wait_for(b"ModuleNotFoundError")
        while not terminal.ended:
            output += terminal.read(0.2)
        frame, _, rest = output.partition(LEFT)
        assert frame.startswith(b"\x1b[?1049h"), "on the alternate screen, not on that of the shell"
        assert title in frame.decode()
        assert b"\\x1b" not in frame, "no sequence is escaped"
        assert b"ModuleNotFoundError" in rest, "the failure is read on the shell's screen"
        assert terminal.modes() == terminal.at_start


def test_a_signal_between_the_first_frame_and_textual_restores_the_terminal(tmp_path: Path) -> None:
    with Watch(tmp_path, program=[sys.executable, "-c", WITHOUT_END]) as terminal:
        assert b"Jobs" in terminal.wait_for(b"Jobs")
        os.kill(terminal.pid, signal.SIGTERM)
        assert LEFT in terminal.wait_for(LEFT)
        while not terminal.ended:
            terminal.read(0.2)
        assert terminal.modes() == terminal.at_start


def test_keys_typed_at_the_first_frame_are_answered(tmp_path: Path) -> None:
    with Watch(tmp_path, "watch") as terminal:
        assert b"Jobs" in terminal.wait_for(b"Jobs")
        terminal.press(b"?q")  # opens and closes help: `q` closes what is on top
        terminal.press(b"q")
        assert LEFT in terminal.wait_for(LEFT)


@pytest.mark.parametrize("size", SIZES)
async def test_the_screen_takes_over_what_the_first_frame_shows(size: tuple[int, int]) -> None:
    app = Gates(FakeBox()).app(None)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app._session is not None)
        assert_kept(draw_frame(screen_panels(*size), "1 Settings", *size, {}), screen_text(app), size)


@pytest.mark.parametrize("size", SIZES)
async def test_watch_takes_over_what_the_first_frame_shows(size: tuple[int, int]) -> None:
    heading = list(watch_panels(*size))[1]
    app = WatchApp(iter(()), lambda: WatchScreen(False, heading))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert_kept(draw_frame(watch_panels(*size), "Jobs", *size, {}), screen_text(app), size)


def assert_kept(frame: str, shown: str, size: tuple[int, int]) -> None:
    """Every character of the first frame stands in the screen's first one."""
    terminal = FakeTerminal()
    terminal.feed(frame)
    for y, row in enumerate(shown.splitlines()):
        first = terminal.text(y, size[0]).rstrip()
        for x, character in enumerate(first):
            assert character in (" ", row[x : x + 1]), (y, first, row)


def frames(terminal: Watch, written: bytes) -> Iterator[bytes]:
    """Yield the frames written from now on; nothing is written between them but what shows no text."""
    while not terminal.ended:
        while SYNC_END not in written:
            written += terminal.read(1.0)
        frame, _, written = written.partition(SYNC_END)
        between, _, frame = frame.partition(SYNC_START)
        assert not _NO_TEXT.sub(b"", between).strip(), between
        assert SYNC_START not in frame
        yield frame


@pytest.mark.parametrize("words", [(), ("watch",)])
def test_no_frame_is_torn_while_the_terminal_is_resized(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "opened").touch()  # else it is the first start, whose note covers corners
    with Watch(tmp_path, *words) as terminal:
        before, _, after = terminal.wait_for(SYNC_QUERY).partition(SYNC_QUERY)
        assert before
        terminal.press(SYNC_ANSWER)
        read = frames(terminal, after)
        shown = FakeTerminal()
        for columns, rows in SIZES * 2:
            terminal.resize(columns, rows)
            while max(shown.cells, default=(0, 0)) != (rows - 1, columns - 1):
                frame = FakeTerminal()
                frame.feed(next(read).decode())
                corner = max(frame.cells, default=None)
                # A whole frame of this size: a change of panels at 120 × 40 may end where one of 119 × 31 does.
                resized = len(frame.cells) == rows * columns and corner == (rows - 1, columns - 1)
                if resized and corner != max(shown.cells, default=None):
                    shown = FakeTerminal()
                shown.cells.update(frame.cells)
                assert_whole(shown)


def assert_whole(shown: FakeTerminal) -> None:
    """Every cell has a character, and every panel four corners."""
    rows, columns = (most + 1 for most in max(shown.cells))
    missing = {(y, x) for y in range(rows) for x in range(columns)} - shown.cells.keys()
    assert not missing, f"{columns} x {rows}: {sorted(missing)}"
    text = "".join(shown.text(y, columns) for y in range(rows))
    assert text.count("╭") == text.count("╮") == text.count("╰") == text.count("╯") > 0, text
