"""`tuner-tui run --when-free`, `--sweep`, `--after`, `--stop-after` and `tuner-tui queue`, as a person types them."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.cli.commands.test_run import WAIT, Shell
from tests.fakes.nvml.scenario import GIB, FakeGpu, FakeProcess, Scenario, Wave
from tests.runs.queue.queue_box import QueueBox, eventually
from tests.runs.sandbox import Fifo, fifo, wait_ended
from tuner_tui.cli.commands.run import expand_sweep
from tuner_tui.cli.options import build_app
from tuner_tui.core.file_locks import acquire_lock
from tuner_tui.core.units import parse_duration
from tuner_tui.runs.queue.queued_run import memory_folder, start_file, waiter_lock
from tuner_tui.runs.store.folder import read_supervisor_state, runs_dir
from tuner_tui.runs.store.record import read_record
from tuner_tui.settings.errors import SettingsError

__all__ = ["fifo"]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()
    shutil.rmtree(memory_folder(runs_dir(made.environ)), ignore_errors=True)


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueueBox]:
    """r001 waits for a GPU that is not there, in this state folder; nothing looks at it."""
    box = QueueBox(tmp_path)
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path))
    box.add("")
    lock = acquire_lock(waiter_lock(box.root))
    yield box
    os.close(lock)
    box.close()


def here(*words: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(build_app(), list(words))


def test_a_sweep_is_queued_at_once_and_runs_one_after_another(shell: Shell, fifo: Fifo) -> None:
    words = ("--sweep", "seed=1,2", "--", sys.executable, shell.script(WAIT), str(fifo.path), "{seed}")
    done = shell("run", "--when-free", "--gpus", "0", *words)
    assert (done.returncode, done.stdout.split()) == (0, ["r001", "r002"]), done.stderr
    assert [read_record(shell.folder(name)).argv[-1] for name in ("r001", "r002")] == ["1", "2"]
    assert fifo.word() == "up"
    (line,) = json.loads(shell("queue", "--json").stdout)
    assert (line["run"], line["state"], line["gpus"]) == ("r002", "waiting", 0)
    assert line["title"].endswith(" seed=2"), "what tells the runs of a sweep apart"
    assert shell("stop", "--now", "r001").returncode == 0
    assert fifo.word() == "up"  # the end of the first run starts the second
    assert shell("stop", "--now", "r002").returncode == 0


def test_every_command_says_that_a_run_waits(waiting: QueueBox) -> None:
    text = here("queue").stdout
    assert text.splitlines()[0].split() == ["RUN", "STATE", "GPUS", "WAITING", "COMMAND"]
    assert "r001  waiting  1" in text
    assert "It was queued a moment ago." in text
    (row,) = json.loads(here("ps", "--json").stdout)
    assert (row["status"], row["duration_s"]) == ("waiting", None)
    assert "r001 has not started." in here("logs", "r001").stderr
    diagnosed = here("diagnose", "r001")
    assert (diagnosed.exit_code, "r001 has not started." in diagnosed.stderr) == (2, True)
    assert "It was queued a moment ago" in here("diff", "r001", "r001").stdout
    assert here("stop", "--checkpoint-only", "r001").stderr == "The run has not started yet.\n"
    assert here("stop", "r001").stdout == "Removed from the queue before it started.\n"
    assert here("queue").stdout.startswith("The queue is empty.")


def test_after_a_reboot_one_command_queues_the_runs_again(waiting: QueueBox) -> None:
    folder = waiting.folders()[0]
    before = start_file(folder).read_text()
    start_file(folder).unlink()  # as a reboot does
    assert json.loads(here("queue", "--json").stdout)[0]["state"] == "was-waiting"
    assert "queue --restart" in here("ps").stdout
    assert here("queue", "--restart").stderr == "r001 waits again.\n"
    assert json.loads(start_file(folder).read_text())["argv"] == json.loads(before)["argv"]
    assert json.loads(here("queue", "--json").stdout)[0]["state"] == "waiting"


def test_a_run_gets_the_gpu_that_a_stranger_leaves_free(shell: Shell, tmp_path: Path, nvml_library: Path) -> None:
    """Two GPUs of the fake driver, one of which is taken."""
    full = FakeGpu(memory_used=Wave(70 * GIB), processes=(FakeProcess(4242, 70 * GIB),))
    gpus = Scenario((full, FakeGpu(memory_used=Wave(0), processes=())))
    shell.environ |= {
        name: value for name, value in gpus.environment(nvml_library, tmp_path).items() if name not in shell.environ
    }
    script = shell.script("import os; print('GPU', os.environ['CUDA_VISIBLE_DEVICES'])")
    queued = shell("run", "--when-free", "--", sys.executable, script)
    assert "Queued for 1 GPU." in queued.stderr
    eventually(shell.folder().state.exists)
    wait_ended(shell.folder())
    assert shell.folder().output_log.read_text() == "GPU GPU-00000000-0000-0000-0000-000000000001\n"


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
    with pytest.raises(SettingsError, match="these are 1,000,000 runs"):
        expand_sweep([f"{name}=" + ",".join(map(str, range(100))) for name in "abc"])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("4h", 14400), ("90 min", 5400), ("1h30m", 5400), ("45s", 45), ("1.5h", 5400), ("4", None), ("h", None)],
)
def test_a_time_has_a_unit(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds
