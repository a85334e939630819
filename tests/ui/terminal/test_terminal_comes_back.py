"""Signals, a lost terminal and floods of input, each with the whole program on a real terminal."""

from __future__ import annotations

import os
import signal
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.benchmarks.screen.terminal import Terminal
from tuner_tui.core.procfs import read_stat

PROGRAM = [sys.executable, "-m", "tuner_tui"]
LONGEST_S = 300.0
LEFT = b"\x1b[?1049l"
"""Leaves the alternate screen."""


def modes_of(descriptor: int) -> list[int]:
    """Input, output, control and local modes of a terminal."""
    return [int(mode) for mode in termios.tcgetattr(descriptor)[:4]]


class Watch(Terminal):
    """`tuner-tui watch` on a terminal, whose modes at the start are known."""

    def __init__(self, folder: Path, *words: str, program: Sequence[str] = PROGRAM) -> None:
        self.folder = folder
        fresh = os.openpty()
        self.at_start = modes_of(fresh[0])
        for descriptor in fresh:
            os.close(descriptor)
        environment = {**os.environ, "TERM": "xterm-256color", "TUNER_STATE_DIR": str(folder / "state")}
        super().__init__([*program, *words], environment, folder)

    def modes(self) -> list[int]:
        """Input, output, control and local modes of the terminal."""
        return modes_of(self._fd)

    def __enter__(self) -> Watch:
        return self

    def wait_for(self, text: bytes) -> bytes:
        """Read until `text` was written or the program has ended."""
        output, deadline = b"", time.monotonic() + LONGEST_S
        while text not in output and not self.ended and time.monotonic() < deadline:
            output += self.read(0.2)
        return output

    def crash_reports(self) -> list[str]:
        return [path.name for path in self.folder.rglob("crash-*")]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    with Watch(tmp_path, "watch") as terminal:
        assert b"CPU" in terminal.wait_for(b"CPU")
        yield terminal


@pytest.mark.parametrize("stop", [signal.SIGSTOP, signal.SIGTSTP])
def test_a_stop_and_a_continue_leave_it_answering(watch: Watch, stop: int) -> None:
    raw = watch.modes()
    for _ in range(8):
        os.kill(watch.pid, signal.SIGCONT)
        os.kill(watch.pid, stop)  # while it takes the terminal
        deadline = time.monotonic() + LONGEST_S
        while (stat := read_stat(watch.pid)) is not None and stat.state != "T":
            assert time.monotonic() < deadline, "it does not stop"
            watch.read(0.01)  # a shell, too, continues a job only after it has stopped
    for _ in range(2):
        os.kill(watch.pid, signal.SIGCONT)
    written = watch.wait_for(b"\x1b[?1049h").rpartition(b"\x1b[?1049h")[2]
    assert b"Quit" in written or b"Quit" in watch.wait_for(b"Quit"), "everything is written again"
    assert watch.modes() == raw
    watch.press(b"q")
    assert LEFT in watch.wait_for(LEFT)
    while not watch.ended:
        watch.read(0.2)
    assert watch.modes() == watch.at_start


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_it_restores_the_terminal(watch: Watch, number: int) -> None:
    os.kill(watch.pid, number)
    assert LEFT in watch.wait_for(LEFT)
    while not watch.ended:
        watch.read(0.2)
    assert watch.modes() == watch.at_start
    assert watch.crash_reports() == []


WRITER = """
import os, signal, termios, threading
from tuner_tui.ui.terminal.shell_modes import restore_terminal_on_signals
restore_terminal_on_signals(termios.tcgetattr(0))
threading.Thread(target=lambda: os.write(1, b"x" * 1_000_000), daemon=True).start()
signal.pause()
"""


def test_a_signal_during_a_write_restores_the_terminal(tmp_path: Path) -> None:
    """A terminal takes no second write meanwhile, although the reader has bytes of the first already."""
    with Watch(tmp_path, program=[sys.executable, "-c", WRITER]) as terminal:
        assert b"x" in terminal.wait_for(b"x")
        os.kill(terminal.pid, signal.SIGQUIT)
        assert LEFT in terminal.wait_for(LEFT)


def cpu_s(pid: int) -> float:
    """Processor time spent so far, which is the same on a busy machine."""
    stat = read_stat(pid)
    return 0.0 if stat is None else stat.cpu_s


@pytest.mark.full
@pytest.mark.parametrize(
    "flood",
    [b"x" * 10_000, b"\x1b]0;" + b"a" * 40_000],
    ids=["paste", "open sequence"],
)
def test_a_flood_of_input_is_bounded(watch: Watch, flood: bytes) -> None:
    before_s = spent_s = cpu_s(watch.pid)
    for start in range(0, len(flood), 1_000):
        watch.press(flood[start : start + 1_000])
        watch.read(0.01)
    deadline = time.monotonic() + LONGEST_S
    while not watch.ended and time.monotonic() < deadline:
        spent_s = cpu_s(watch.pid) or spent_s
        watch.press(b"q")
        watch.read(0.3)
    assert watch.ended
    assert spent_s - before_s < 15.0, "as keys, all of them would take 4 ms each or more: 40 s and 160 s"


def test_keys_that_arrive_together_are_taken_in_order(tmp_path: Path) -> None:
    """Of `/warmup`, the letters are not commands of the screen on which `/` is about to open the search."""
    with Watch(tmp_path) as terminal:
        assert b"warmup_steps" not in terminal.wait_for(b"demo")
        terminal.press(b"/warmup\r")
        assert b"warmup_steps" in terminal.wait_for(b"warmup_steps")


def test_the_shell_gets_the_terminal_on_ctrl_z_and_gives_it_back(tmp_path: Path) -> None:
    words = f"{sys.executable} -m tuner_tui watch; echo at the shell; fg"
    with Watch(tmp_path, program=["sh", "-mc", words]) as terminal:
        assert b"CPU" in terminal.wait_for(b"CPU")
        terminal.press(b"\x1a")
        output, deadline = b"", time.monotonic() + LONGEST_S
        while b"Quit" not in output.partition(b"at the shell")[2] and time.monotonic() < deadline:
            output += terminal.read(0.2)
        assert output.index(LEFT) < output.index(b"at the shell") < output.index(b"\x1b[?1049h")
        assert b"Quit" in output.partition(b"at the shell")[2], "everything is written again"


def test_what_is_pasted_is_no_key(tmp_path: Path) -> None:
    """Neither after a sequence of colours nor where a sequence of the paste itself is read in two parts."""
    with Watch(tmp_path, "watch") as terminal:
        assert b"CPU" in terminal.wait_for(b"CPU")
        for part in (b"\x1b[20", b"0~a\x1b[31mq\x1b[0mq\x1bq\x1b", b"[201", b"~?"):
            terminal.press(part)
            terminal.read(0.3)
        assert b"Help" in terminal.wait_for(b"Help"), "the key after it"
        assert not terminal.ended


def test_ctrl_c_before_the_first_frame_says_nothing(tmp_path: Path) -> None:
    for delay_s in (0.15, 0.3, 0.45):
        with Watch(tmp_path, "watch") as terminal:
            time.sleep(delay_s)  # the moment is the case
            os.kill(terminal.pid, signal.SIGINT)
            output = b""
            while not terminal.ended:
                output += terminal.read(1.0)
            # Python itself prints a traceback before the first line of the program has run.
            assert b"Traceback" not in output or b"/tuner_tui/" not in output
            assert terminal.crash_reports() == []


def test_a_vanished_terminal_is_no_failure_of_the_program(tmp_path: Path) -> None:
    with Watch(tmp_path, "watch") as terminal:
        assert b"CPU" in terminal.wait_for(b"CPU")
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, terminal._fd)  # closes this end of the terminal
        os.close(nowhere)
        ended = os.waitid(os.P_PID, terminal.pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        assert terminal.crash_reports() == []
