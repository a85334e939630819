"""`tuner-tui run --when-free` and `tuner-tui queue`, as a person types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from tests.cli.commands.test_run import PATIENCE_S, WAIT, Shell, shell
from tests.fakes.nvml.build import NO_COMPILER, build_library
from tests.fakes.nvml.scenario import GIB, FakeGpu, FakeProcess, Scenario, Wave
from tests.runs.sandbox import Fifo, fifo, wait_ended
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


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, by what other processes do."""
    pause = Event()
    for _ in range(round(PATIENCE_S / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError("the condition was never met")


def test_a_second_run_waits_for_the_first_and_says_so(queued: Shell, fifo: Fifo) -> None:
    first, second = json.loads(queued("queue", "ls", "--json").stdout)
    assert (first["entry"], first["state"], first["run"]) == ("q001", "running", "r001")
    assert (second["entry"], second["state"], second["run"]) == ("q002", "waiting", None)
    text = queued("queue").stdout
    assert text.splitlines()[0].split() == ["ENTRY", "STATE", "RUN", "WAITING", "WHAT"]
    assert queued("queue", "rm", "q1").stderr == "q001 is running as r001; `tuner-tui stop r001` stops it.\n"
    assert queued("queue", "move", "q2", "1").returncode == 0
    assert queued("queue", "hold", "q2").stdout == "q002 is held.\n"
    assert queued("stop", "--now", "r001").returncode == 0
    assert queued("queue", "release", "q2").returncode == 0
    assert fifo.word() == "up"
    assert queued("stop", "--now", "r002").returncode == 0


def test_a_run_gets_the_card_that_a_stranger_leaves_free(shell: Shell, tmp_path: Path) -> None:
    """Two cards of the fake driver, one of which is nearly full."""
    library = build_library(tmp_path)
    if library is None:
        pytest.skip(NO_COMPILER)
    full = FakeGpu(memory_used=Wave(70 * GIB), processes=(FakeProcess(4242, 70 * GIB),))
    cards = Scenario((full, FakeGpu(memory_used=Wave(0), processes=())))
    shell.environ |= {"XDG_RUNTIME_DIR": str(tmp_path)} | {
        name: value for name, value in cards.environment(library, tmp_path).items() if name not in shell.environ
    }
    script = shell.script("import os; print('card', os.environ['CUDA_VISIBLE_DEVICES'])")
    queued = shell("run", "--when-free", "--memory-limit", "30GiB", "--", "python", script)
    assert "Queued for 1 GPU with 30.5 GiB (--memory-limit)." in queued.stderr
    too_large = shell("run", "--when-free", "--memory-limit", "90GiB", "--", "python", script)
    assert (too_large.returncode, too_large.stdout) == (2, "")
    wait_for(lambda: shell.folder().state.exists())
    wait_ended(shell.folder())
    assert shell.folder().output_log.read_text() == "card GPU-00000000-0000-0000-0000-000000000001\n"


def test_what_can_never_start_is_refused(shell: Shell) -> None:
    script = shell.script("")
    for words, sentence in (
        (("--gpus", "99"), "99 GPUs are asked for"),
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
