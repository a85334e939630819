"""An unexpected error: one sentence, a private file, exit code 1, and no values of variables."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from pathlib import Path

import pytest

from tests.benchmarks.screen.terminal import Terminal
from tuner_tui.ui.terminal.base_app import BaseApp, write_crash_report

SECRET = "hf_" + "a" * 24
BROKEN = """
from tests.fakes.ui_backend import FakeBox

def broken(*_):
    password = "open-sesame"
    raise KeyError("colour")

box = FakeBox()
app = box.app(box.backend({method}=broken))
app.run()
raise SystemExit(app.return_code)
"""


def test_the_report_is_private_and_shows_no_secret(tmp_path: Path) -> None:
    try:
        local = SECRET
        raise ValueError(f"bad token {local}")
    except ValueError as error:
        sentence = write_crash_report(error, tmp_path / "state")
    file = Path(sentence.rpartition(" ")[2])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "ValueError: bad token" in file.read_text()
    assert SECRET not in file.read_text()
    assert sentence.count("\n") == 0


def test_where_it_cannot_be_written_the_sentence_says_so(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file, no folder")
    assert "could not be written" in write_crash_report(ValueError("x"), tmp_path / "state")


@pytest.mark.parametrize("method", ["read_inventory", "open_sampler"], ids=["task", "thread"])
def test_a_bug_ends_the_screen_with_one_sentence(method: str, tmp_path: Path, repository: Path) -> None:
    environment = {**os.environ, "TERM": "xterm-256color", "TUNER_STATE_DIR": str(tmp_path / "state")}
    script = BROKEN.format(method=method)
    written = b""
    with Terminal([sys.executable, "-c", script], environment, repository, columns=400) as terminal:
        while not terminal.ended:
            written += terminal.read(30)
        ended = os.waitid(os.P_PID, terminal.pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        assert ended.si_status == 1
    assert b"bug in tuner-tui" in written
    assert b"open-sesame" not in written
    assert b"Traceback" not in written
    [file] = (tmp_path / "state").glob("crash-*.txt")
    assert "KeyError" in file.read_text()


async def test_a_task_that_outlives_its_widgets_ends_with_the_app() -> None:
    app, begun = BaseApp("dark", colour=True, ascii_only=False), asyncio.Event()

    async def look_for_a_panel() -> None:
        begun.set()
        while app.is_running:
            await asyncio.sleep(0)
        app.query_one("#panel")

    async with app.run_test():
        app.run_task(look_for_a_panel)
        await begun.wait()
