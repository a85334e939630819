"""`tuner-tui run --when-free`, `--sweep`, `--after`, `--stop-after` and `tuner-tui queue`, as a person types them."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands.runs.test_run import WAIT, Shell
from tests.fakes.nvml.build import NO_COMPILER, build_library
from tests.fakes.nvml.scenario import GIB, FakeGpu, FakeProcess, Scenario, Wave
from tests.runs.queue.queue_box import eventually
from tests.runs.sandbox import Fifo, fifo, wait_ended
from tuner_tui.cli.commands.runs.run import expand_sweep
from tuner_tui.core.units import parse_duration
from tuner_tui.runs.queue.queued_run import memory_folder
from tuner_tui.runs.store.folder import runs_dir
from tuner_tui.runs.store.record import read_record
from tuner_tui.runs.store.supervisor_state import read_supervisor_state
from tuner_tui.settings.errors import SettingsError

__all__ = ["fifo"]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()
    shutil.rmtree(memory_folder(runs_dir(made.environ)), ignore_errors=True)


def test_a_sweep_is_queued_at_once_and_runs_one_after_another(shell: Shell, fifo: Fifo) -> None:
    words = ("--sweep", "learning_rate=1e-5,3e-5", "--sweep", "seed=1,2", "--", sys.executable, shell.script(WAIT))
    done = shell("run", "--when-free", "--gpus", "0", *words, str(fifo.path), "{learning_rate}", "{seed}")
    assert (done.returncode, done.stdout.split()) == (0, ["r001", "r002", "r003", "r004"]), done.stderr
    records = [read_record(shell.folder(name)) for name in done.stdout.split()]
    assert [record.argv[-2:] for record in records] == [("1e-05", "1"), ("1e-05", "2"), ("3e-05", "1"), ("3e-05", "2")]
    assert fifo.word() == "up"
    lines = json.loads(shell("queue", "--json").stdout)
    assert [(line["run"], line["state"]) for line in lines] == [(f"r00{n}", "waiting") for n in (2, 3, 4)]
    text = shell("queue").stdout
    assert text.splitlines()[0].split() == ["RUN", "STATE", "GPUS", "WAITING", "COMMAND"]
    assert "It trains on the processor, which run r001 has now or before it." in text
    assert shell("stop", "r003").stdout == "Removed from the queue before it started.\n"
    assert shell("stop", "--checkpoint-only", "r002").stderr == "The run has not started yet.\n"
    assert "has not started" in shell("logs", "r002").stderr
    assert "has not started" in shell("diagnose", "r002").stderr
    assert shell("diff", "r001", "r002").returncode == 0
    rows = {row["run"]: row for row in json.loads(shell("ps", "--json").stdout)}
    assert [rows[f"r00{n}"]["outcome"] or rows[f"r00{n}"]["status"] for n in (2, 3, 4)] == [
        "waiting", "stopped", "waiting",
    ]  # fmt: skip
    assert shell("stop", "--now", "r001").returncode == 0
    assert fifo.word() == "up"  # the end of the first run starts the second
    assert shell("stop", "r004").returncode == shell("stop", "--now", "r002").returncode == 0


def test_a_run_gets_the_card_that_a_stranger_leaves_free(shell: Shell, tmp_path: Path) -> None:
    """Two cards of the fake driver, one of which is taken."""
    library = build_library(tmp_path)
    if library is None:
        pytest.skip(NO_COMPILER)
    full = FakeGpu(memory_used=Wave(70 * GIB), processes=(FakeProcess(4242, 70 * GIB),))
    cards = Scenario((full, FakeGpu(memory_used=Wave(0), processes=())))
    shell.environ |= {
        name: value for name, value in cards.environment(library, tmp_path).items() if name not in shell.environ
    }
    script = shell.script("import os; print('card', os.environ['CUDA_VISIBLE_DEVICES'])")
    queued = shell("run", "--when-free", "--", sys.executable, script)
    assert "Queued for 1 GPU." in queued.stderr
    eventually(shell.folder().state.exists)
    wait_ended(shell.folder())
    assert shell.folder().output_log.read_text() == "card GPU-00000000-0000-0000-0000-000000000001\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--when-free", "--gpus", "99"), "99 GPUs are asked for"),
        (("--when-free", "--gpus", "0", "--after", "r77"), "There is no run 'r77'"),
        (("--when-free", "--sweep", "seed"), "--sweep seed: use name=value,value"),
        (("--when-free", "--after", "r1", "--after-success", "r1"), "exclude each other"),
        (("--gpus", "1"), "go with --when-free"),
        (("--stop-after", "soon"), "'soon' is not a time"),
    ],
)
def test_what_cannot_be_done_is_refused(shell: Shell, words: tuple[str, ...], sentence: str) -> None:
    done = shell("run", *words, "--", sys.executable, "-c", "pass")
    assert done.returncode == 2
    assert sentence in done.stderr
    assert not runs_dir(shell.environ).exists() or not list(runs_dir(shell.environ).glob("r*"))


def test_after_a_reboot_one_command_queues_the_runs_again(shell: Shell, fifo: Fifo) -> None:
    command = (sys.executable, shell.script(WAIT), str(fifo.path))
    shell("run", "--when-free", "--gpus", "0", "--", *command)
    assert fifo.word() == "up"
    assert shell("run", "--when-free", "--gpus", "0", "--", *command, "again").stdout == "r002\n"
    for path in memory_folder(runs_dir(shell.environ)).glob("r*"):
        path.unlink()  # as a reboot does
    assert json.loads(shell("queue", "--json").stdout)[0]["state"] == "was-waiting"
    assert "queue --restart" in shell("ps").stdout
    assert shell("queue", "--restart").stderr == "r002 waits again.\n"
    assert shell("stop", "--now", "r001").returncode == 0
    assert fifo.word() == "up"
    assert shell("stop", "--now", "r002").returncode == 0


def test_a_run_stops_after_its_time(shell: Shell) -> None:
    done = shell("run", "--stop-after", "1s", "--", "sleep", "300")
    assert done.returncode == 143
    state = read_supervisor_state(shell.folder().state)
    assert state is not None
    assert state.outcome == "stopped"
    assert state.problems == ("It was asked to stop after 1 s (--stop-after).",)


def test_a_sweep_is_the_product_of_its_values() -> None:
    assert list(expand_sweep(())) == [()]
    assert list(expand_sweep(("a=1,2", "b=x,y")))[1:3] == [("a=1", "b=y"), ("a=2", "b=x")]
    with pytest.raises(SettingsError):
        expand_sweep(("a=1,,2",))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("4h", 14400), ("90 min", 5400), ("1h30m", 5400), ("45s", 45), ("1.5h", 5400), ("4", None), ("h", None)],
)
def test_a_time_has_a_unit(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds
