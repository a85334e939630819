"""A run obeys: on a full disk, with a hung or killed supervisor, with ranks in sessions of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.command_line import tuner
from tests.runs.sandbox import supervisor_state, wait_gone
from tuner_tui.core.file_locks import wait_unlocked
from tuner_tui.core.procfs import ProcessId, all_processes, identify_process, is_alive, read_command_line
from tuner_tui.runs.launch.orders import give_order, wait_ended
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.supervise.run_processes import find_processes

WAIT = "import signal, sys\nprint('up', flush=True)\nwhile True: signal.pause()\n"
DEAF = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAIT
RANKS = """
import subprocess, sys
start = {"start_new_session": True, "stdout": subprocess.DEVNULL}
ranks = [subprocess.Popen([sys.executable, "rank.py"], **start) for _ in range(2)]
print(*[rank.pid for rank in ranks], flush=True)
for rank in ranks: rank.wait()
"""


def full(*values: object) -> list[Any]:
    """Parameters of the full set."""
    return [pytest.param(value, marks=pytest.mark.full) for value in values]


def is_launch_recorded(folder: RunFolder) -> bool:
    return folder.events.exists() and b'"kind":"launched"' in folder.events.read_bytes()


class Run:
    """A run started by the command line in `state`."""

    def __init__(self, workspace: Path, state: Path, script: str, rank: str = DEAF) -> None:
        self.state = state
        (workspace / "train.py").write_text(script)
        (workspace / "rank.py").write_text(rank)
        launched = tuner(state, "run", "--detach", "--", sys.executable, str(workspace / "train.py"))
        assert launched.returncode == 0, launched
        self.folder = RunFolder(state / "runs" / launched.stdout.strip())
        supervision = supervisor_state(self.folder)
        assert supervision.training is not None
        self.supervisor, self.training = supervision.supervisor, supervision.training
        self.notes = launched.stderr

    def first_line(self) -> str:
        """The first line of the output, once the launch is on record too."""
        while "\n" not in (text := self.folder.output_log.read_text()) or not is_launch_recorded(self.folder):
            assert is_alive(self.training)
            time.sleep(0.02)
        return text.splitlines()[0]

    def kill_supervisor(self) -> None:
        os.kill(self.supervisor.pid, signal.SIGKILL)
        wait_gone(self.supervisor)
        wait_unlocked(self.folder.lock)  # its threads may end a moment later than the process

    def close(self) -> None:
        for process in (self.supervisor, self.training):
            if is_alive(process):
                os.kill(process.pid, signal.SIGKILL)
        for member in find_processes(self.folder.path, self.training).with_tied().members:
            os.kill(member.pid, signal.SIGKILL)


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    started: list[Run] = []
    yield started
    for run in started:
        run.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def start(runs: list[Run], workspace: Path, script: str, state: Path | None = None, rank: str = DEAF) -> Run:
    run = Run(workspace, state or workspace / "state", script, rank)
    runs.append(run)
    return run


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file:
        for size in (65536, 512, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


@pytest.mark.parametrize("words", [*full(()), ("--now",)])
def test_stop_on_a_full_disk(tmp_path: Path, runs: list[Run], small_disk: Path, words: tuple[str, ...]) -> None:
    run = start(runs, tmp_path, WAIT, small_disk / "state")
    run.first_line()
    fill(small_disk)
    stopped = tuner(run.state, "stop", run.folder.id, *words)
    assert stopped.returncode == 0, stopped
    assert not is_alive(run.training)
    assert read_status(run.folder).outcome == "stopped"


@pytest.mark.full
def test_stop_on_a_full_disk_of_a_run_whose_order_file_was_deleted(
    tmp_path: Path, runs: list[Run], small_disk: Path
) -> None:
    run = start(runs, tmp_path, DEAF, small_disk / "state")
    run.first_line()
    run.folder.control.unlink()
    fill(small_disk)
    stopped = tuner(run.state, "stop", run.folder.id, "--now")
    assert stopped.returncode == 0, stopped
    assert "cannot be written" in stopped.stderr
    assert not is_alive(run.training)
    assert read_status(run.folder).outcome == "stopped"


@pytest.mark.full
def test_stop_with_a_hung_supervisor(tmp_path: Path, runs: list[Run]) -> None:
    run = start(runs, tmp_path, WAIT)
    run.first_line()
    os.kill(run.supervisor.pid, signal.SIGSTOP)
    stopped = tuner(run.state, "stop", run.folder.id)
    assert stopped.returncode == 0, stopped
    assert "The supervisor does not respond; sending signals to the training instead." in stopped.stderr
    assert not is_alive(run.training)
    assert read_status(run.folder).outcome == "stopped"


def test_stop_of_a_stopped_training(tmp_path: Path, runs: list[Run]) -> None:
    run = start(runs, tmp_path, WAIT)
    os.kill(run.training.pid, signal.SIGSTOP)
    assert tuner(run.state, "stop", run.folder.id).returncode == 0
    assert not is_alive(run.training)


def ranks_of(run: Run) -> list[ProcessId]:
    processes = [identify_process(int(pid)) for pid in run.first_line().split()]
    return [outcome for outcome in processes if outcome is not None]


def kill(run: Run, killed: str) -> None:
    if killed in ("supervisor", "both"):
        run.kill_supervisor()
    if killed in ("launcher", "both"):
        os.kill(run.training.pid, signal.SIGKILL)
        wait_gone(run.training)


@pytest.mark.full
@pytest.mark.parametrize("killed", ["nobody", "both"])
def test_deaf_ranks_in_sessions_of_their_own_are_killed(tmp_path: Path, runs: list[Run], killed: str) -> None:
    run = start(runs, tmp_path, RANKS)
    ranks = ranks_of(run)
    assert len(ranks) == 2
    kill(run, killed)
    if killed == "nobody":
        stopped = tuner(run.state, "stop", run.folder.id)
        assert all(is_alive(rank) and str(rank.pid) in stopped.stdout for rank in ranks), stopped
    stopped = tuner(run.state, "stop", run.folder.id, "--now")
    assert stopped.returncode == 0, stopped
    assert not [rank.pid for rank in ranks if is_alive(rank)]


@pytest.mark.parametrize("killed", [*full("supervisor", "launcher"), "both"])
def test_a_gentle_stop_ends_ranks_in_sessions_of_their_own(tmp_path: Path, runs: list[Run], killed: str) -> None:
    run = start(runs, tmp_path, RANKS, rank=WAIT)
    ranks = ranks_of(run)
    kill(run, killed)
    if killed == "both":
        listed = tuner(run.state, "ps").stdout
        assert all(str(rank.pid) in listed for rank in ranks)
    stopped = tuner(run.state, "stop", run.folder.id)
    assert stopped.returncode == 0, stopped
    assert not [rank.pid for rank in ranks if is_alive(rank)]


def test_an_order_that_comes_after_the_end_reaches_the_ranks_that_are_left(tmp_path: Path, runs: list[Run]) -> None:
    run = start(runs, tmp_path, RANKS, rank=WAIT)
    ranks = ranks_of(run)
    kill(run, "launcher")
    wait_gone(run.supervisor)
    notes: list[str] = []
    give_order(run.folder, "stop")
    wait_ended(run.folder, "stop", notes.append)
    assert [note for note in notes if "left processes running" in note]
    assert not [rank.pid for rank in ranks if is_alive(rank)]


ESCAPING = """
import signal, subprocess, sys
output = None if sys.argv[1] == "log" else subprocess.DEVNULL
subprocess.Popen(sys.argv[2:], stdout=output, stderr=output)
while True: signal.pause()
"""
DEAF_SHELL = "trap '' TERM HUP INT; while :; do sleep 1; done"
ESCAPES = {
    "env": ["setsid", "env", "-i", "sh", "-c"],
    "su": ["setsid", "su", "-", "-s", "/bin/sh", "nobody", "-c"],
    "daemon": ["env", "-i", "setsid", "--fork", "setsid", "--fork", "sh", "-c"],
}


def escaped(mark: str) -> list[ProcessId]:
    """The living shells of `DEAF_SHELL` with this mark."""
    living = [
        identify_process(process.pid) for process in all_processes() if mark in read_command_line(process.pid)[-1:]
    ]
    return [process for process in living if process is not None and is_alive(process)]


@pytest.mark.parametrize(
    ("way", "output"),
    [("env", "elsewhere"), ("su", "elsewhere"), pytest.param("daemon", "log", marks=pytest.mark.full)],
)
def test_stop_ends_a_rank_without_environment_after_its_supervisor_and_launcher_died(
    tmp_path: Path, runs: list[Run], way: str, output: str
) -> None:
    if way == "su" and os.getuid() != 0:
        pytest.skip("only root may become another user")
    mark = f"{DEAF_SHELL} # {tmp_path}"
    (tmp_path / "escaping.py").write_text(ESCAPING)
    words = ["run", "--detach", "--", sys.executable, str(tmp_path / "escaping.py"), output, *ESCAPES[way], mark]
    launched = tuner(tmp_path / "state", *words)
    folder = RunFolder(tmp_path / "state/runs" / launched.stdout.strip())
    deadline_s = time.monotonic() + 60.0
    while not (ranks := escaped(mark)) or (output == "elsewhere" and not supervisor_state(folder).apart):
        assert time.monotonic() < deadline_s, launched
        time.sleep(0.05)
    for process in (supervisor_state(folder).supervisor, supervisor_state(folder).training):
        if process is not None and is_alive(process):
            os.kill(process.pid, signal.SIGKILL)
            wait_gone(process)
    wait_unlocked(folder.lock)
    stopped = tuner(tmp_path / "state", "stop", folder.id, "--now")
    left = [rank.pid for rank in ranks if is_alive(rank)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert (stopped.returncode, left) == (0, []), stopped


@pytest.fixture(params=[*full("errno = ENOLCK; return -1;"), "return 0;"])
def without_locks(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A library to preload, in whose programs no file system has locks: NFS without its server for locks, or one that
    grants every lock."""
    source, library = tmp_path / "flock.c", tmp_path / "flock.so"
    source.write_text(f"#include <errno.h>\nint flock(int file, int how) {{ {request.param} }}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return str(library)


def test_without_locks_a_run_starts_says_so_once_and_stops(
    tmp_path: Path, runs: list[Run], without_locks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", without_locks)
    run = start(runs, tmp_path, WAIT)
    warning = f"{run.state / 'runs'} has no file locks: use it from one program at a time"
    assert run.notes.count(warning) == run.notes.count(" file locks") == 1
    stopped = tuner(run.state, "stop", run.folder.id)
    assert stopped.returncode == 0, stopped
    assert not is_alive(run.training)
    assert "stopped" in tuner(run.state, "ps").stdout


@pytest.mark.full
def test_without_locks_what_needs_them_is_refused(tmp_path: Path, without_locks: str) -> None:
    state = tmp_path / "state"
    queued = tuner(state, "run", "--when-free", "--", sys.executable, "-c", "pass", LD_PRELOAD=without_locks)
    assert queued.returncode == 2
    assert "The queue cannot be changed: its file system has no locks; set TUNER_STATE_DIR to a folder" in queued.stderr
    assert tuner(state, "queue", LD_PRELOAD=without_locks).returncode == 0
    assert not (state / "runs/r001").exists()


OBSERVED_END = """
import json, os, pathlib, time
folder = pathlib.Path(os.environ["TUNER_RUN_DIR"])
print("up", flush=True)
while not (folder / "go").exists(): time.sleep(0.01)
events = [{"kind": "started", "pid": os.getpid()}, {"kind": "plan", "total_steps": 3}, {"kind": "ended", "step": 3}]
with (folder / "events.jsonl").open("a") as file:
    for event in events:
        file.write(json.dumps({"story": 1, "v": 1, "t": time.time(), "rank": 0, **event}) + "\\n")
"""


def test_an_outcome_is_found_by_whoever_looks_first(tmp_path: Path, runs: list[Run]) -> None:
    run = start(runs, tmp_path, OBSERVED_END)
    run.first_line()
    run.kill_supervisor()
    (run.folder.path / "go").touch()
    wait_gone(run.training)
    assert "completed" in tuner(run.state, "ps").stdout
    assert tuner(run.state, "logs", "-f", "--events", run.folder.id).returncode == 0
    assert supervisor_state(run.folder).outcome == "completed"


@pytest.mark.parametrize("name", [*full("output.log"), "control"])
def test_stop_of_a_run_without_supervisor_whose_file_became_a_pipe(tmp_path: Path, runs: list[Run], name: str) -> None:
    run = start(runs, tmp_path, WAIT)
    run.first_line()
    run.kill_supervisor()
    (run.folder.path / name).unlink()
    os.mkfifo(run.folder.path / name)
    stopped = tuner(run.state, "stop", run.folder.id, "--now")
    assert stopped.returncode == 0, stopped
    assert not is_alive(run.training)


@pytest.mark.parametrize("name", [*full("lock"), "state.json"])
def test_a_run_with_a_deleted_file_is_still_that_run(tmp_path: Path, runs: list[Run], name: str) -> None:
    run = start(runs, tmp_path, WAIT)
    run.first_line()
    (run.folder.path / name).unlink()
    status = read_status(run.folder)
    assert status.live
    assert status.kind == ("running" if name == "lock" else "starting")
    assert tuner(run.state, "stop", run.folder.id).returncode == 0
    assert not is_alive(run.training)
    assert read_status(run.folder).outcome == "stopped"
