"""`tuner-tui run --when-free` and `tuner-tui queue`, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands.test_run import WAIT, Shell, shell
from tests.runs.sandbox import Fifo, fifo
from tuner_tui.scheduling.queueing import unit_path

__all__ = ["fifo", "shell"]


@pytest.fixture
def queued(shell: Shell, fifo: Fifo) -> Shell:
    """q001 runs and says so by `fifo`; q002 waits for it."""
    shell.environ["XDG_RUNTIME_DIR"] = str(shell.home)
    script = shell.script(WAIT)
    for number in (1, 2):
        done = shell("run", "--when-free", "--gpus", "0", "--", "python", script, str(fifo.path), str(number))
        assert (done.returncode, done.stdout) == (0, f"q00{number}\n"), done.stderr
    assert fifo.word() == "up"
    return shell


def test_a_second_run_waits_for_the_first_and_says_so(queued: Shell, fifo: Fifo) -> None:
    first, second = json.loads(queued("queue", "ls", "--json").stdout)
    assert (first["entry"], first["state"], first["run"]) == ("q001", "running", "r001")
    assert (second["entry"], second["state"], second["run"]) == ("q002", "waiting", None)
    text = queued("queue").stdout
    assert text.splitlines()[0].split() == ["ENTRY", "STATE", "RUN", "WAITING", "WHAT"]
    assert queued("queue", "rm", "q1").stderr == "q001 runs as r001; `tuner-tui stop r001` ends it.\n"
    assert queued("queue", "move", "q2", "1").returncode == 0
    assert queued("queue", "hold", "q2").stdout == "q002 is held.\n"
    assert queued("stop", "--now", "r001").returncode == 0
    assert queued("queue", "release", "q2").returncode == 0
    assert fifo.word() == "up"
    assert queued("stop", "--now", "r002").returncode == 0


def test_what_can_never_start_is_refused(shell: Shell) -> None:
    script = shell.script("")
    for words, sentence in (
        (("--gpus", "99"), "99 cards are asked for"),
        (("--gpus", "0", "--cores", "9999"), "9999 cores are asked for"),
        (("--gpus", "0", "--after", "r77"), "There is no run 'r77'"),
        (("--gpus", "0", "--after", "q7"), "There is no entry 'q7'"),
    ):
        done = shell("run", "--when-free", *words, "--", "python", script)
        assert done.returncode == 2
        assert sentence in done.stderr
    assert shell("run", "--gpus", "1", "--", "python", script).returncode == 2
    assert shell("queue").stdout.startswith("The queue is empty.")


def test_an_order_about_no_entry_fails(shell: Shell) -> None:
    for words in (("rm", "q1"), ("hold", "q1"), ("release", "q1"), ("move", "q1", "1")):
        done = shell("queue", *words)
        assert (done.returncode, done.stderr) == (2, "There is no entry 'q1' in the queue. It is empty.\n")


def test_the_unit_for_a_reboot_is_shown_and_written_on_request(shell: Shell, tmp_path: Path) -> None:
    shell.environ["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    path = unit_path(shell.environ)
    shown = shell("queue", "at-boot")
    assert shown.returncode == 1
    assert not path.exists()
    assert shell("queue", "at-boot", "--yes").returncode == 0
    assert path.read_text() in shown.stdout
    assert "KillMode=process" in path.read_text()
    assert shell("queue", "at-boot", "--remove").returncode == 0
    assert not path.exists()
