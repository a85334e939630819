"""The dispatcher with real trainings on cards that exist as files."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runs.sandbox import supervisor_state, wait_gone
from tests.scheduling.conftest import QueueBox
from tuner_tui.core.files import acquire_lock
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.record import read_record
from tuner_tui.runs.store.supervisor_state import write_supervisor_state
from tuner_tui.scheduling.queue_store import QueueError
from tuner_tui.scheduling.queueing import view_queue
from tuner_tui.scheduling.starting import bind, launch_request
from tuner_tui.settings.job import CommandJob


def outcomes(box: QueueBox) -> list[str | None]:
    return [read_status(folder).outcome for folder in reversed(box.runs())]


def test_twelve_runs_among_strangers_all_complete(box: QueueBox) -> None:
    """None runs out of memory, and while anybody waits the two cards are in use."""
    wanted = [(30, 0.4), (60, 0.6), (14, 0.3), (70, 0.3), (40, 0.5), (22, 0.2),
              (35, 0.4), (70, 0.4), (10, 0.6), (50, 0.3), (25, 0.4), (16, 0.3)]  # fmt: skip
    for gib, seconds in wanted:
        box.add(box.request(gib, seconds))
    box.add(box.request(20, 0.3), gpus=2)
    came = {0: False, 6: False}

    def strangers() -> None:
        """One comes at the start and leaves after six runs; another comes then."""
        ended = sum(outcome is not None for outcome in outcomes(box))
        if not came[0]:
            came[0] = box.cards.stranger(box.cards.keys[0], 20)
        if ended >= 6 and not came[6]:
            box.cards.leave(box.cards.keys[0])
            came[6] = True

    strangers()
    box.play(box.is_empty, strangers)
    assert outcomes(box) == ["completed"] * 13
    assert len(box.cards.starts()) == 13
    assert came == {0: True, 6: True}


def test_a_run_is_bound_to_the_card_that_has_room(box: QueueBox) -> None:
    box.cards.stranger(box.cards.keys[0], 60)
    entry = box.add(box.request(40, 30))
    box.play(lambda: box.cards.used_gib(box.cards.keys[1]) == 40)
    (now,) = box.queue.read().entries
    assert (now.id, now.progress.state, now.progress.keys) == (entry.id, "running", (box.cards.keys[1],))
    (run,) = box.runs()
    assert read_record(run).queued_as == entry.token


def test_the_jobs_own_variables_stay_where_the_queue_binds_none(box: QueueBox) -> None:
    request = box.request(10, 0.1)
    own = CommandJob(command=("python", "t.py"), env={"OMP_NUM_THREADS": "3", "CUDA_VISIBLE_DEVICES": "0"})
    request = replace(request, job=own, environ={**request.environ, "OMP_NUM_THREADS": "8"})
    job = bind(request, box.add(request), ("GPU-a",)).job
    assert isinstance(job, CommandJob)
    assert job.env == {"OMP_NUM_THREADS": "3", "CUDA_VISIBLE_DEVICES": "GPU-a"}


def test_a_started_run_holds_its_place_before_it_has_taken_it(box: QueueBox) -> None:
    """Both cards are promised at once, though nothing is held yet: the third waits, and says for whom."""
    for number in range(3):
        box.add(box.request(50, 30 + number))
    assert box.dispatcher.step()
    assert box.dispatcher.step()
    assert not box.dispatcher.step()
    lines = view_queue(box.queue)
    assert [line.state for line in lines] == ["running", "running", "waiting"]
    assert "run r001 50.0 GiB" in lines[2].reason


def test_processes_of_others_are_named(box: QueueBox) -> None:
    for key in box.cards.keys:
        box.cards.stranger(key, 70)
    box.add(box.request(50, 1))
    assert not box.dispatcher.step()
    assert "GPU 0 has 6.0 GiB free (alice: python train.py 70.0 GiB)" in view_queue(box.queue)[0].reason


def test_direct_starts_take_part(box: QueueBox) -> None:
    """A run started by hand on every card, of which nothing is known yet, keeps the queue from both."""
    by_hand = box.request(10, 30)
    keys = ",".join(box.cards.keys)
    silent = CommandJob(command=(sys.executable, "-c", "import time; time.sleep(60)"), apply="none")
    environ = {**by_hand.environ, "CUDA_VISIBLE_DEVICES": keys}
    by_hand = replace(by_hand, job=silent, memory_limit_bytes=None, environ=environ)
    folder = launch_request(by_hand)
    box.add(box.request(5, 1))
    assert not box.dispatcher.step()
    assert f"run {folder.id}" in view_queue(box.queue)[0].reason


def test_out_of_memory_by_a_neighbour_puts_it_back_once(box: QueueBox) -> None:
    """A stranger takes the memory between the start and the allocation; the second attempt waits until it has left."""
    box.add(box.request(60, 0.1))

    def launch(request: LaunchRequest) -> RunFolder:
        if not box.runs():
            for key in box.cards.keys:
                assert box.cards.stranger(key, 40)
        return launch_request(request)

    box.dispatcher = box.new_dispatcher(launch)
    box.play(lambda: bool(box.queue.read().entries[0].progress.requeued))
    assert not box.dispatcher.step()
    (line,) = view_queue(box.queue)
    assert line.state == "waiting"
    assert "back in the queue, once" in line.reason
    assert "process 4242 uses 40.00 GiB" in line.reason
    for key in box.cards.keys:
        box.cards.leave(key)
    box.play(box.is_empty)
    assert outcomes(box) == ["out-of-memory", "completed"]
    assert read_record(box.runs()[0]).parent == "r001"


def test_out_of_memory_by_itself_does_not_come_back(box: QueueBox) -> None:
    box.add(box.request(90, 0.1, promised_gib=50))
    box.play(box.is_empty)
    assert outcomes(box) == ["out-of-memory"]


def test_one_waits_for_the_end_of_another(box: QueueBox) -> None:
    first = box.add(box.request(10, 0.3))
    second = box.add(box.request(10, 0.1), after=first.id)
    assert box.dispatcher.step()
    box.dispatcher.step()
    if box.queue.read().find(first.id) is not None:
        assert view_queue(box.queue)[-1].reason == f"It starts after {first.id} has ended."
    box.play(box.is_empty)
    assert second.id == "q002"
    assert outcomes(box) == ["completed", "completed"]


def test_an_entry_whose_folder_is_gone_is_held_and_stops_nobody(box: QueueBox) -> None:
    gone = box.add(replace(box.request(10, 0.1), cwd=Path("/nowhere/at/all")))
    box.add(box.request(10, 0.1))
    box.play(lambda: len(box.queue.read().entries) == 1)
    (line,) = view_queue(box.queue)
    assert (line.entry, line.state) == (gone.id, "held")
    assert "/nowhere/at/all" in line.reason
    assert f"tuner-tui queue release {gone.id}" in line.reason
    assert box.dispatcher.ends()


def test_an_entry_whose_run_to_resume_is_gone_is_held(box: QueueBox) -> None:
    box.add(replace(box.request(10, 0.1), parent=RunFolder(box.state / "runs" / "r077")))
    assert not box.dispatcher.step()
    (line,) = view_queue(box.queue)
    assert line.state == "held"
    assert "r077" in line.reason
    assert not box.cards.starts()


def test_a_full_disk_holds_nothing(box: QueueBox) -> None:
    """The start fails, and is tried again later."""

    def launch(request: LaunchRequest) -> RunFolder:
        raise LaunchError("The run folder cannot be made.") from OSError(errno.ENOSPC, "No space left on device")

    entry = box.add(box.request(10, 0.1))
    assert not box.new_dispatcher(launch).step()
    found = box.queue.read().find(entry.id)
    assert found is not None
    assert (found.progress.state, found.progress.held) == ("waiting", None)


def test_cards_that_vanish_start_nothing(box: QueueBox) -> None:
    box.add(box.request(10, 0.1))
    box.cards.keys.clear()
    assert not box.dispatcher.step()
    assert view_queue(box.queue)[0].reason.endswith("no GPU can be seen now.")


def test_nothing_starts_while_a_tuning_measures(box: QueueBox) -> None:
    box.add(box.request(10, 0.1))
    tuning = box.state / "tunings" / "t001"
    tuning.mkdir(parents=True)
    acquire_lock(tuning / "lock")
    assert not box.dispatcher.step()
    assert "t001" in view_queue(box.queue)[0].reason


def test_the_running_one_cannot_be_removed(box: QueueBox) -> None:
    entry = box.add(box.request(10, 30))
    box.dispatcher.step()
    with pytest.raises(QueueError, match="q001 is running as r001; `tuner-tui stop r001` stops it"):
        box.queue.withdraw(entry.id)


def test_a_damaged_entry_is_one_bad_line(box: QueueBox) -> None:
    box.add(box.request(10, 0.1))
    (box.queue.path / "q002.json").write_text('{"v": 1, "id": ')
    (box.queue.path / "q003.json").write_text(json.dumps({"v": 1, "id": "q003", "request": []}))
    box.play(box.is_empty)
    assert [(line.entry, line.state) for line in view_queue(box.queue)] == [("q002", "damaged"), ("q003", "damaged")]
    assert box.queue.withdraw("q003") == "q003"
    assert [line.entry for line in view_queue(box.queue)] == ["q002"]


def test_a_reboot_puts_the_run_that_it_ended_back(box: QueueBox) -> None:
    """Its state file is of another boot, and none of its processes lives."""
    entry = box.add(box.request(10, 30))
    assert box.dispatcher.step()
    (folder,) = box.runs()
    known = supervisor_state(folder)
    assert known.training is not None
    for process in (known.supervisor, known.training):
        os.kill(process.pid, signal.SIGKILL)
        wait_gone(process)
    for path in (box.cards.folder / box.cards.keys[0]).glob("*.gib"):
        path.unlink()
    write_supervisor_state(folder.state, replace(known, machine=replace(known.machine, boot_id="another")))
    box.play(lambda: len(box.runs()) == 2)
    found = box.queue.read().find(entry.id)
    assert found is not None
    assert found.progress.requeued is not None
    assert "the machine was restarted" in found.progress.requeued
