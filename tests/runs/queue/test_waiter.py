"""What the waiter starts, what it holds back, and what it makes of damage; most starts are only noted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tests.runs.queue.queue_box import FakeSampler, QueueBox, eventually, fake_gpus
from tuner_tui.core.file_locks import acquire_lock
from tuner_tui.core.line_files import append_line
from tuner_tui.core.units import GIB
from tuner_tui.hardware.inventory import GpuProcess
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events.types import FellBack
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.queue.gpu_occupancy import shortage_by
from tuner_tui.runs.queue.listing import list_queue
from tuner_tui.runs.queue.queued_run import (
    WAS_WAITING,
    QueuedRun,
    QueueError,
    end_waiting,
    memory_folder,
    start_file,
    waiting_run,
    write_queued,
)
from tuner_tui.runs.queue.submission import waiting_request
from tuner_tui.runs.queue.waiter import bound_fallback
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.settings.job import CommandJob

FIRST, SECOND = fake_gpus(2)


class Starts:
    """Notes what is started; each run keeps its lock, as if a supervisor had it."""

    def __init__(self) -> None:
        self.runs: dict[str, tuple[str, ...]] = {}
        self.locks: dict[str, int] = {}

    def __call__(self, folder: RunFolder, gpus: tuple[str, ...], lock: int) -> None:
        self.runs[folder.id] = gpus
        self.locks[folder.id] = os.dup(lock)


def need(gpus: int = 1, allowed: Sequence[str] = fake_gpus(2), **more: object) -> QueuedRun:
    return QueuedRun(time.time(), gpus, tuple(allowed), **more)  # type: ignore[arg-type]


def reason(folder: RunFolder) -> str:
    return read_status(folder).sentence


def test_runs_start_in_their_order_and_each_has_its_gpu_until_it_ends(box: QueueBox) -> None:
    starts = Starts()
    waiter = box.waiter(FakeSampler(fake_gpus(2)), starts)
    folders = [box.add("") for _ in range(3)]
    waiter.step()
    waiter.step()
    assert starts.runs == {"r001": (FIRST,), "r002": (SECOND,)}
    assert [read_status(folder).kind for folder in folders] == ["starting", "starting", "waiting"]
    assert reason(folders[2]) == "It needs 1 GPU, 0 free. GPU 0: run r001; GPU 1: run r002."
    os.close(starts.locks["r001"])
    end_waiting(folders[0], "stopped", "")
    waiter.step()
    assert starts.runs["r003"] == (FIRST,)


def test_a_gpu_is_free_when_no_process_of_anybody_holds_memory(box: QueueBox) -> None:
    starts, stranger = Starts(), GpuProcess(4242, 20 * GIB, "python train.py", "alice")
    sampler = FakeSampler(fake_gpus(2), {FIRST: stranger, SECOND: GpuProcess(99, 200 * 2**20, "Xorg")})
    folder = box.add("", need(2))
    waiter = box.waiter(sampler, starts)
    waiter.step()
    assert reason(folder) == "It needs 2 GPUs, 1 free. GPU 0: alice: python train.py."
    sampler.processes, sampler.used_bytes = {}, 3 * GIB
    waiter.step()
    assert "GPU 1: processes that are not visible from here" in reason(folder)
    sampler.used_bytes = GIB // 4
    waiter.step()
    assert starts.runs == {"r001": (FIRST, SECOND)}


def test_a_run_that_was_started_directly_has_the_gpus_it_can_see_until_it_comes_to_one(
    box: QueueBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", SECOND)
    box.sandbox.launch("", job=CommandJob(command=("sleep", "300")))
    starts = Starts()
    waiting = box.add("", need(2))
    box.waiter(FakeSampler(fake_gpus(2)), starts).step()
    assert reason(waiting) == "It needs 2 GPUs, 1 free. GPU 1: run r001."


def test_a_training_is_short_of_the_processor_only_while_a_run_has_it(box: QueueBox) -> None:
    starts, on_processor = Starts(), need(0)
    folder = box.add("", on_processor)
    sample = Sample(time.time())
    assert shortage_by(box.root, on_processor, (), sample) == ""
    box.waiter(fake_gpus(0), starts).step()
    assert shortage_by(box.root, on_processor, (), sample) == "The CPU is taken by run r001."
    assert shortage_by(box.root, on_processor, (), None) == "", "nothing is known before the first sample"
    os.close(starts.locks["r001"])
    end_waiting(folder, "stopped", "")
    assert shortage_by(box.root, on_processor, (), sample) == ""


def test_a_training_is_short_of_gpus_by_the_sample_that_is_there(
    box: QueueBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", SECOND)
    box.sandbox.launch("", job=CommandJob(command=("sleep", "300")))
    sampler = FakeSampler(fake_gpus(2))
    gpus, sample = [gpu for gpu in sampler.gpus() if gpu is not None], sampler.sample()
    assert shortage_by(box.root, need(1), gpus, sample) == ""
    assert shortage_by(box.root, need(2), gpus, sample) == "It needs 2 GPUs, 1 free. GPU 1: run r001."


def test_a_run_after_another_waits_for_its_end(box: QueueBox) -> None:
    starts = Starts()
    waiter = box.waiter(fake_gpus(2), starts)
    first = box.add("")
    second = box.add("", need(after="r001"))
    third = box.add("", need(after="r001", after_success=True))
    fourth = box.add("", need(after="r003", after_success=True))
    waiter.step()
    assert set(starts.runs) == {"r001"}
    assert reason(second) == "It starts after run r001 has ended."
    os.close(starts.locks["r001"])
    end_waiting(first, "failed", "It broke.")
    waiter.step()
    waiter.step()
    assert set(starts.runs) == {"r001", "r002"}
    status = read_status(third)
    assert (status.kind, status.outcome) == ("ended", "not-started")
    assert status.sentence == "Not started: run r001, which had to complete first, ended as failed."
    assert read_status(fourth).outcome == "not-started"


QUEUED = {"v": 1, "submitted_t": 1.0, "gpus": 1, "allowed": [fake_gpus(1)[0]]}
DAMAGED = (
    "", "null", "[" * 100_000, '{"v": 1}', '{"v": 1, "gpus": "many"}', *(
        json.dumps({**QUEUED, **change})
        for change in (
            {"gpus": -1}, {"gpus": 1e400}, {"gpus": True}, {"allowed": "GPU-0"}, {"allowed": ["a b"]}, {"v": "1"},
            {"after": "../r001"}, {"after": ""}, {"after": ["r001"]}, {"after_success": "yes"}, {"gpus": ["\0"]},
            {"submitted_t": "now"}, {"submitted_t": float("nan")}, {"submitted_t": -1},
        )
    ),
)  # fmt: skip


def test_damage_of_any_kind_is_a_bad_line_and_stops_no_other_run(box: QueueBox) -> None:
    runs = {box.add(""): content for content in DAMAGED}
    sound, starts = box.add(""), Starts()
    for run, content in runs.items():
        run.queue.write_text(content)
    box.waiter(fake_gpus(1), starts).step()
    assert set(starts.runs) == {sound.id}
    lines = {line.run: line.state for line in list_queue(box.root)}
    assert [content for run, content in runs.items() if lines.pop(run.id, None) != "damaged"] == []
    assert [content for run, content in runs.items() if read_status(run).kind != "broken"] == []
    assert lines == {}


@pytest.mark.parametrize("damage", ["start", "fallback", "name", "cycle"])
def test_damage_in_memory_stops_no_other_run(box: QueueBox, damage: str) -> None:
    folder, sound = box.add(""), box.add("print('trained')")
    if damage == "cycle":
        end_waiting(folder, "out-of-memory", "")
        append_line(folder.events, encode_event(FellBack(t=time.time(), into="r001", number=1, most=2)))
        write_queued(sound, replace(need(1), after="r001"))
    else:
        path = start_file(folder, damage) if damage != "name" else memory_folder(box.root) / "NAME.start"
        path.write_text('{"argv": 5, "environ": [], "job": 1}')
    waiter = box.waiter(fake_gpus(1))

    def completed() -> bool:
        waiter.step()
        return read_status(sound).outcome == "completed"

    eventually(completed, 0.5)
    assert damage in ("name", "cycle") or read_status(folder).kind == "waiting"


def test_nothing_starts_while_a_tuning_measures(box: QueueBox) -> None:
    tunings = box.root.parent / "tunings"
    folder = box.add("")
    tunings.mkdir()
    lock = acquire_lock(tunings / "lock")
    starts = Starts()
    waiter = box.waiter(fake_gpus(1), starts)
    waiter.step()
    assert "tuning" in reason(folder)
    os.close(lock)
    waiter.step()
    assert set(starts.runs) == {"r001"}


def test_a_start_that_fails_is_tried_again_later(box: QueueBox) -> None:
    def fail(folder: RunFolder, gpus: tuple[str, ...], lock: int) -> None:
        raise OSError(28, "No space left on device")

    folder = box.add("")
    waiter = box.waiter(fake_gpus(1), fail)
    waiter.step()
    waiter.step()
    assert "will be tried again" in reason(folder)
    assert waiting_run(folder) is not None


def test_a_removed_run_is_never_started(box: QueueBox) -> None:
    folder = box.add("")
    assert end_waiting(folder, "stopped", "Removed.")
    assert not end_waiting(folder, "stopped", "Removed.")
    starts = Starts()
    box.waiter(fake_gpus(1), starts).step()
    assert not starts.runs
    assert (read_status(folder).outcome, list_queue(box.root)) == ("stopped", ())


def test_after_a_reboot_it_was_waiting(box: QueueBox) -> None:
    folder = box.add("")
    start_file(folder).unlink()
    starts = Starts()
    box.waiter(fake_gpus(1), starts).step()
    assert not starts.runs
    assert reason(folder) == WAS_WAITING
    assert [line.state for line in list_queue(box.root)] == ["was-waiting"]


def test_a_command_with_a_secret_cannot_be_queued_again_without_it(box: QueueBox) -> None:
    folder = box.add("", command=("sleep", "0", "--token=hf_abcdefghijklmnopqrstuvwxyz"))
    assert "hf_abc" not in folder.record.read_text()
    assert "hf_abc" in start_file(folder).read_text()
    with pytest.raises(LaunchError, match="contains a secret"):
        waiting_request(folder, {})


def test_what_a_start_needs_is_read_by_this_user_alone_and_named_by_a_run(box: QueueBox) -> None:
    path = start_file(box.add(""))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert "PATH" in json.loads(path.read_text())["env"]
    with pytest.raises(QueueError):
        start_file(RunFolder(box.root / "r1 x"))
    memory = memory_folder(box.root)
    memory.parent.chmod(0o755)
    try:
        with pytest.raises(PermissionError):
            memory_folder(box.root)
    finally:
        memory.parent.chmod(0o700)


def test_retries_after_out_of_memory_get_the_same_gpus() -> None:
    data = {"environ": {"A": "b"}, "job": {"env": {"CUDA_VISIBLE_DEVICES": "0", "MODE": "x"}}}
    bound = json.loads(bound_fallback(json.dumps(data).encode(), FIRST))
    assert bound["environ"] == {"A": "b", "CUDA_VISIBLE_DEVICES": FIRST}
    assert bound["job"]["env"] == {"CUDA_VISIBLE_DEVICES": FIRST, "MODE": "x"}


def test_the_waiter_is_small() -> None:
    script = "import tuner_tui.runs.queue.waiter, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "typer", "textual", "tuner_tui.settings", "tuner_tui.runs.read.status"} & set(loaded)
