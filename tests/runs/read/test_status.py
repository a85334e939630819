"""The status of a run depends on locks and processes, not on what was once recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from tuner_tui.core.file_locks import acquire_lock
from tuner_tui.core.procfs import ProcessId, identify_process, this_machine
from tuner_tui.runs.launch.orders import give_order
from tuner_tui.runs.read.reader import list_run
from tuner_tui.runs.read.status import START_GRACE_S, read_status
from tuner_tui.runs.store.folder import (
    RunFolder,
    SupervisorState,
    create_folder,
    read_supervisor_state,
    write_supervisor_state,
)
from tuner_tui.runs.supervise.run_processes import RUN_VARIABLE

GONE = ProcessId(2**22 + 1, 1)
HERE = this_machine()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = create_folder(tmp_path)
    made.record.write_text("{}")
    return made


def myself() -> ProcessId:
    processes = identify_process(os.getpid())
    assert processes is not None
    return processes


def state(**more: object) -> SupervisorState:
    return replace(SupervisorState(HERE, GONE, 1.0, training=GONE), **more)


def test_running_while_the_lock_is_held(folder: RunFolder) -> None:
    write_supervisor_state(folder.state, state(training=myself()))
    lock = acquire_lock(folder.lock)
    status = read_status(folder)
    assert (status.kind, status.pid, status.training_alive) == ("running", os.getpid(), True)
    os.close(lock)
    assert read_status(folder).kind == "lost"


def test_without_its_supervisor_the_training_may_go_on(folder: RunFolder) -> None:
    write_supervisor_state(folder.state, state(training=myself()))
    status = read_status(folder)
    assert (status.kind, status.training_alive, status.live) == ("lost", True, True)
    assert str(os.getpid()) in status.sentence


def test_processes_of_a_run_whose_folder_was_deleted(tmp_path: Path) -> None:
    deleted = RunFolder(tmp_path / "runs" / "r004")
    assert read_status(deleted).sentence == f"There is no run folder {deleted.path}."
    environment = {**os.environ, RUN_VARIABLE: str(deleted.path)}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env=environment) as process:
        status = read_status(deleted)
        assert (status.kind, status.pid, status.live) == ("broken", process.pid, True)
        assert status.sentence.endswith(f"but processes of the run continue: {process.pid} (cat).")
        give_order(deleted, "terminate")
        assert process.wait() == -signal.SIGTERM
    assert not read_status(deleted).live


def test_a_process_number_used_again_is_not_the_training(folder: RunFolder) -> None:
    mine = myself()
    write_supervisor_state(folder.state, state(training=ProcessId(mine.pid, mine.start_ticks - 1)))
    status = read_status(folder)
    assert (status.kind, status.training_alive, status.live, status.pid) == ("lost", False, False, None)


@pytest.mark.parametrize(
    ("elsewhere", "kind", "words"),
    [
        ({"host": "elsewhere", "boot_id": "another"}, "foreign", (HERE.host, "elsewhere")),
        ({"pid_namespace": "pid:[1]"}, "foreign", ("container",)),
        ({"boot_id": "another"}, "lost", ("rebooted",)),
    ],
)
def test_seen_from_another_machine_container_or_boot(
    folder: RunFolder, elsewhere: dict[str, str], kind: str, words: tuple[str, ...]
) -> None:
    write_supervisor_state(folder.state, state(training=myself()))
    status = read_status(folder, machine=replace(HERE, **elsewhere))
    assert (status.kind, status.live) == (kind, False)
    assert all(word in status.sentence for word in words)


def test_an_outcome_holds_everywhere(folder: RunFolder) -> None:
    write_supervisor_state(folder.state, state(outcome="completed", sentence="Completed.", exit_code=0))
    status = read_status(folder, machine=replace(HERE, host="elsewhere", boot_id="another"))
    assert (status.kind, status.outcome, status.sentence) == ("ended", "completed", "Completed.")


def test_a_young_folder_is_being_launched_an_old_one_never_was(folder: RunFolder) -> None:
    born = folder.path.stat().st_mtime
    assert read_status(folder, now=born + 1).kind == "starting"
    late = read_status(folder, now=born + START_GRACE_S + 1)
    assert (late.kind, late.live) == ("lost", False)
    assert "never started" in late.sentence
    assert read_status(folder, now=born - 1).kind == "starting"  # a file server's clock is a little ahead
    assert read_status(folder, now=born - 3600).kind == "lost"  # the clock was set back


def test_the_command_that_removes_a_half_written_folder_is_quoted(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "my runs" / "r001")
    folder.path.mkdir(parents=True)
    status = read_status(folder, now=folder.path.stat().st_mtime + START_GRACE_S + 1)
    assert f"`rm -r '{folder.path}'` removes it." in status.sentence


def test_a_half_written_folder(folder: RunFolder) -> None:
    folder.record.unlink()
    status = read_status(folder, now=folder.path.stat().st_mtime + START_GRACE_S + 1)
    assert (status.kind, status.outcome) == ("ended", "not-started")
    assert status.sentence == (
        f"Its launch was interrupted before the training started. `rm -r {folder.path}` removes it."
    )
    os.utime(folder.path, (time.time() - START_GRACE_S - 1,) * 2)
    row = list_run(folder, time.time())
    assert (row.outcome, row.damage) == ("not-started", "")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"v":1}', b'{"v":9}', b"\xff", b"null", b"[" * 10_000])
def test_a_damaged_state(folder: RunFolder, content: bytes) -> None:
    folder.state.write_bytes(content)
    assert read_supervisor_state(folder.state) is None
    status = read_status(folder)
    assert status.kind == "broken"
    assert "damaged" in status.sentence


def test_on_a_full_disk_the_state_is_written_over_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_supervisor_state(path, state())
    (tmp_path / f".state.json.{os.getpid()}.new").symlink_to("/dev/full")
    now = state(outcome="completed", problems=("the disk is full",))
    write_supervisor_state(path, now)
    assert read_supervisor_state(path) == now
    assert path.stat().st_size == 8192
