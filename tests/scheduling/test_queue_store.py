"""The queue's files: order, orders of the user, secrets, and two terminals at once."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.scheduling.conftest import QueueBox
from tuner_tui.scheduling.entry import EntryError, QueueEntry
from tuner_tui.scheduling.queue_store import Queue, QueueError
from tuner_tui.scheduling.queueing import view_queue, wake_dispatcher
from tuner_tui.settings.job import CommandJob

TOKEN = "hf_" + "abcdefghijklmnop1234"


def order(queue: Queue) -> list[str]:
    return [entry.id for entry in queue.read().entries]


def secret_entry(box: QueueBox) -> QueueEntry:
    request = box.request(1, 1)
    return box.add(replace(request, environ={**request.environ, "HF_TOKEN": TOKEN}))


def test_an_entry_comes_back_from_its_file_as_it_was(box: QueueBox) -> None:
    added = box.add(box.request(1, 1), after="q001")
    (found,) = box.queue.read().entries
    assert found == replace(added, request=found.request)
    assert found.request.job == added.request.job
    assert found.request.resolved == added.request.resolved


def test_entries_move_and_leave(box: QueueBox) -> None:
    for _ in range(4):
        box.add(box.request(1, 1))
    box.queue.move("q4", 1)
    box.queue.move("1", 3)
    assert order(box.queue) == ["q004", "q002", "q001", "q003"]
    box.queue.move("q002", 9)
    assert order(box.queue) == ["q004", "q001", "q003", "q002"]
    box.queue.withdraw("q003")
    assert order(box.queue) == ["q004", "q001", "q002"]
    with pytest.raises(QueueError, match="no entry 'q003' in the queue"):
        box.queue.withdraw("q003")


def test_a_name_never_means_another_entry(box: QueueBox) -> None:
    box.queue.withdraw(box.add(box.request(1, 1)).id)
    assert box.add(box.request(1, 1)).id == "q002"


def test_a_held_entry_waits_until_it_is_released(box: QueueBox) -> None:
    box.add(box.request(1, 1))
    box.queue.hold("q001")
    assert view_queue(box.queue)[0].state == "held"
    assert not box.dispatcher.step()
    assert box.dispatcher.ends()
    box.queue.release("q001")
    assert not box.dispatcher.ends()


def test_many_terminals_at_once_lose_no_entry(box: QueueBox) -> None:
    request = box.request(1, 1)
    with ThreadPoolExecutor(8) as threads:
        added = list(threads.map(lambda _: box.add(request), range(24)))
    assert sorted(entry.id for entry in added) == [f"q{number:03d}" for number in range(1, 25)]
    assert len({entry.progress.order for entry in box.queue.read().entries}) == 24


def test_files_are_private_and_hold_no_secret(box: QueueBox, tmp_path: Path) -> None:
    secret_entry(box)
    for path in (box.queue.path, *box.queue.path.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
        assert path.is_dir() or TOKEN not in path.read_text()
    (kept,) = (tmp_path / "secrets").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700


def test_the_complete_request_has_its_secrets(box: QueueBox) -> None:
    entry = secret_entry(box)
    (found,) = box.queue.read().entries
    assert TOKEN not in found.request.environ.values()
    assert box.queue.complete_request(found).environ["HF_TOKEN"] == TOKEN
    box.queue.withdraw(entry.id)
    assert not list((box.state.parent / "secrets").iterdir())


def test_after_a_reboot_a_secret_comes_from_the_shell_that_releases(box: QueueBox) -> None:
    entry = secret_entry(box)
    (box.state.parent / "secrets" / entry.token).unlink()
    (found,) = box.queue.read().entries
    with pytest.raises(EntryError, match="HF_TOKEN was kept in memory only"):
        box.queue.complete_request(found, {})
    with pytest.raises(QueueError, match="HF_TOKEN"):
        box.queue.release(entry.id, {})
    box.queue.release(entry.id, {"HF_TOKEN": TOKEN})
    assert box.queue.complete_request(found, {}).environ["HF_TOKEN"] == TOKEN


def test_a_secret_in_the_command_is_asked_for_again(box: QueueBox) -> None:
    request = box.request(1, 1)
    entry = box.add(replace(request, job=CommandJob(command=("python", "train.py", "--hub_token", TOKEN))))
    (box.state.parent / "secrets" / entry.token).unlink()
    with pytest.raises(EntryError, match="queue it again"):
        box.queue.complete_request(box.queue.read().entries[0], dict(os.environ))


def test_a_folder_that_cannot_be_written_is_one_sentence(box: QueueBox) -> None:
    """A file in place of the folder: root may write everywhere else."""
    box.queue.path.write_text("")
    with pytest.raises(QueueError, match="The queue cannot be changed: "):
        box.add(box.request(1, 1))


def test_no_dispatcher_is_started_for_an_empty_or_held_queue(box: QueueBox) -> None:
    assert not wake_dispatcher(box.queue)
    box.add(box.request(1, 1))
    box.queue.hold("q001")
    assert not wake_dispatcher(box.queue)


def test_one_dispatcher_at_a_time_works_until_the_queue_is_empty(box: QueueBox) -> None:
    """The real process, on this machine's processor."""
    request = replace(box.request(1, 1), memory_limit_bytes=None)
    request = replace(request, job=CommandJob(command=("true",)))
    entry = QueueEntry("", "", 0.0, request, box.add(request).progress, gpus=0)
    box.queue.withdraw("q001")
    box.queue.add(entry)
    assert wake_dispatcher(box.queue)
    wake_dispatcher(box.queue)
    box.play_others(lambda: not box.queue.read().entries and not box.queue.dispatcher_lives())
    assert len(box.runs()) == 1
    assert box.queue.dispatcher_log.read_text() == ""
