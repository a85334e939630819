"""The screen as a person opens it: on a terminal of its own, with real signals."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from msgspec.structs import replace

from tests.cli.commands.test_run import shell
from tests.runs.builders import whole_run
from tuner_tui.cli.screen_opener import run_to_open
from tuner_tui.runs.store.folder import read_supervisor_state, runs_dir, write_supervisor_state
from tuner_tui.runs.store.record import read_record, write_record
from tuner_tui.tuning.store import TuningFolder, tunings_dir
from tuner_tui.ui.backend import Backend
from tuner_tui.ui.palette import wants_ascii, wants_colour

__all__ = ["shell"]

MAIN = "from tuner_tui.cli.main import main; main()"
PATIENCE_S = 300.0
SHOWN = b"micro batch"
XTERM = {"TERM": "xterm-256color", "COLORTERM": ""}  # as the terminal of the person who tests may have more colours


class Terminal:
    """A pseudo terminal with a `tuner-tui` in it; `errors` is where its standard error goes, if not there as well."""

    def __init__(self, home: Path, *words: str, errors: IO[bytes] | None = None, **environ: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.attributes = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN, *words], cwd=home, stdin=slave, stdout=slave, stderr=errors or slave,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0),
            env={**os.environ, **XTERM, "TUNER_STATE_DIR": str(home / "state"), **environ},
        )  # fmt: skip
        self.written = b""

    def read_until(self, text: bytes) -> bytes:
        """Read what the screen writes until `text` is in it."""
        ends = time.monotonic() + PATIENCE_S
        while text not in self.written:
            left = ends - time.monotonic()
            assert left > 0, f"{text!r} did not come; the end is {self.written[-300:]!r}"
            if select.select([self.master], [], [], left)[0]:
                self.written += os.read(self.master, 65536)
        return self.written

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def end(self) -> int:
        """Read to the end, so that the screen can write it, and give the exit code."""
        while self.process.poll() is None:
            if select.select([self.master], [], [], 0.05)[0]:
                self.written += os.read(self.master, 65536)
        while select.select([self.master], [], [], 0)[0]:
            self.written += os.read(self.master, 65536)
        return self.process.returncode


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        if terminal.process.poll() is None:
            terminal.process.kill()
            terminal.process.wait()
        for descriptor in (terminal.master, terminal.slave):
            if descriptor >= 0:
                os.close(descriptor)


def opened(
    terminals: list[Terminal], home: Path, *words: str, errors: IO[bytes] | None = None, **environ: str
) -> Terminal:
    terminal = Terminal(home, *words, errors=errors, **environ)
    terminals.append(terminal)
    terminal.read_until(SHOWN)
    return terminal


def test_it_opens_on_the_demo_and_q_leaves_it_as_it_was(terminals: list[Terminal], tmp_path: Path) -> None:
    terminal = opened(terminals, tmp_path)
    terminal.read_until(b"demo")
    terminal.press(b"q")
    assert terminal.end() == 0
    assert b"\x1b[?1049l" in terminal.written
    assert termios.tcgetattr(terminal.slave) == terminal.attributes


def test_the_screen_is_seen_where_standard_error_is_a_file(terminals: list[Terminal], tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w+b") as errors:
        terminal = opened(terminals, tmp_path, errors=errors)
        terminal.press(b"q")
        assert terminal.end() == 0
        assert b"\x1b[?1049l" in terminal.written
        errors.seek(0)
        assert errors.read() == b""


def test_a_vt100_gets_no_colour(terminals: list[Terminal], tmp_path: Path) -> None:
    terminal = opened(terminals, tmp_path, "demo", "--ascii", TERM="vt100")
    terminal.press(b"q")
    assert terminal.end() == 0
    assert not re.findall(rb"\[[0-9;]*[34]8;[0-9;]*m[^\x1b]*", terminal.written)
    assert terminal.written.isascii()


@pytest.mark.parametrize(("command", "text"), [("demo", SHOWN), ("watch", b"CPU")])
def test_the_light_theme_has_a_white_background(
    terminals: list[Terminal], tmp_path: Path, command: str, text: bytes
) -> None:
    terminal = Terminal(tmp_path, command, "--theme", "light", TERM="xterm-256color")
    terminals.append(terminal)
    terminal.read_until(text)
    terminal.press(b"q")
    assert terminal.end() == 0
    assert b"\x1b[48;5;231m" in terminal.written or b";48;5;231m" in terminal.written


def test_a_wrong_value_on_the_command_line_ends_with_2(terminals: list[Terminal], tmp_path: Path) -> None:
    wrong = Terminal(tmp_path, "screen", "demo", "--set", "seed=many")
    terminals.append(wrong)
    wrong.read_until(b"seed must be")
    assert wrong.end() == 2


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "vt100"}, False), ({"NO_COLOR": ""}, True),
    ],
)  # fmt: skip
def test_colour_is_shown_where_it_can_be_and_is_wanted(environ: dict[str, str], wanted: bool) -> None:
    assert wants_colour(environ) is wanted


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False), ({"LANG": "C"}, True), ({"LANG": "C", "LC_ALL": "C.UTF-8"}, False), ({"LANG": "de_DE"}, True),
        ({"LANG": "", "LC_CTYPE": "en_US.utf8"}, False), ({"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}, True),
    ],
)  # fmt: skip
def test_ascii_is_drawn_where_the_locale_has_nothing_else(environ: dict[str, str], wanted: bool) -> None:
    assert wants_ascii(environ) is wanted


def test_the_screen_is_drawn_for_the_locale_of_its_start(terminals: list[Terminal], tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "screen", "demo", LANG="C")
    terminals.append(terminal)
    terminal.read_until(b"Settings")
    terminal.press(b"q")
    assert terminal.end() == 0
    assert terminal.written.isascii()


def test_a_run_that_failed_or_ended_since_the_last_look_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path))
    assert run_to_open(Backend()) is None
    run = whole_run(runs_dir())
    assert run_to_open(Backend()) == run.path
    assert run_to_open(Backend(flags={"seed": "7"})) is None, "another training is asked for"
    Backend().mark_opened()
    os.utime(run.state, (1.0, 1.0))
    assert run_to_open(Backend()) is None, "its end was seen"
    ended = read_supervisor_state(run.state)
    assert ended is not None
    write_supervisor_state(run.state, replace(ended, outcome="failed", exit_code=1))
    os.utime(run.state, (1.0, 1.0))
    assert run_to_open(Backend()) == run.path
    trial = whole_run(runs_dir())
    write_record(trial, replace(read_record(trial), tuning="t001"))
    assert run_to_open(Backend()) == run.path, "a trial is on the screen of its tuning"
    tuning = TuningFolder(tunings_dir(os.environ) / "t001")
    tuning.path.mkdir(parents=True)
    tuning.trials.touch()
    assert Backend().tuning_to_open() == tuning.path
    os.utime(tuning.trials, (1.0, 1.0))
    assert Backend().tuning_to_open() is None, "its end was seen"


def test_the_demo_opens_without_reading_presets_or_importing_typer(tmp_path: Path) -> None:
    script = (
        "import sys; from tuner_tui.cli import screen_opener\n"
        "screen_opener.TunerApp = lambda open_backend, start, **look: "
        'sys.exit(f\'{start.keywords["preset"]} {sorted({"typer", "pydantic", "yaml"} & set(sys.modules))}\')\n'
        "sys.stdin = sys.stdout = type('Terminal', (), {'isatty': lambda self: True, 'flush': lambda self: None})()\n"
        "screen_opener.open_named('demo')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stderr.strip() == "demo []"


def test_the_screen_and_its_help_are_lean_before_the_first_frame() -> None:
    heavy = {"torch", "transformers", "numpy", "pydantic", "yaml", "psutil", "pynvml"}
    heavy |= {"tuner_tui.runs.events.types", "tuner_tui.hardware.inventory"}  # 60 dataclasses
    check = f"import sys, tuner_tui.ui.app, tuner_tui.ui.screens.help; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
