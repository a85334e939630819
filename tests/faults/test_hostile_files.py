"""No content of a file leads a reader to another file, to another process, or out of its errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace

from tests.runs.builders import record, whole_run
from tuner_tui.core.json_struct import to_json
from tuner_tui.core.procfs import ProcessId, this_machine
from tuner_tui.hardware.interpreter import Interpreter, ProbeCacheEntry, interpreter_from_answer
from tuner_tui.hardware.sample import Sample
from tuner_tui.hosts import parse_machine
from tuner_tui.runs.events.types import Checkpoint, Exited, FellBack, Launched, Saved, Started
from tuner_tui.runs.launch.start import ProcessSpec
from tuner_tui.runs.queue.queued_run import QueuedRun, QueueError, read_queued, write_queued
from tuner_tui.runs.queue.waiter import bound_fallback
from tuner_tui.runs.read.checkpoints import lineage_checkpoint, newest_checkpoint, read_checkpoint
from tuner_tui.runs.read.reader import RunReader, list_run
from tuner_tui.runs.read.status import continuation_of, read_status
from tuner_tui.runs.slurm import SlurmJob, read_job, write_job
from tuner_tui.runs.store.codec import encode_event, encode_sample
from tuner_tui.runs.store.folder import RunFolder, read_order, read_supervisor_state
from tuner_tui.runs.store.record import RecordError, read_record
from tuner_tui.runs.supervise.training_process import LaunchSpec, load_launch_spec
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.presets import load_preset
from tuner_tui.tuning.store import TuningFolder, TuningRecord, read_tuning_record
from tuner_tui.tuning.trial_log import TuningEnded, decode_entry, encode_entry

HOSTILE: tuple[Any, ...] = (
    "", ".", "..", "../victim", "../../../victim", "/etc/passwd", "r001/../../victim", "-rf", "--now", "a\0b",
    "x" * 300, "x/" * 3000, "r001\n", " r001", "R001", "\ud800", "\x1b[2J", "$(id)", "nan", "é", -1, 0, 1, 2**31,
    2**63, 10**400, 1.5, 1e308, float("nan"), float("inf"), None, True, [], {}, [[]], {"a": []}, ["a\0b"], {"pid": -1},
)  # fmt: skip
VALUES = st.sampled_from(HOSTILE) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NESTED = "[" * 100_000


@dataclass(frozen=True)
class Reader:
    """A reader of one file in a run folder: its valid content, what it may raise, and what it does with the file."""

    name: str
    valid: str
    read: Callable[[RunFolder], Any]
    raises: tuple[type[Exception], ...] = ()


def line(text: bytes) -> str:
    return text.decode()


def whole_folder(folder: RunFolder) -> None:
    """What every list and command asks of a run."""
    list_run(folder, 10.0)
    view = RunReader(folder).poll()
    for related in (continuation_of(folder, view.state), *map(RunFolder, lineage(folder))):
        assert related is None or related.path.parent == folder.path.parent
    newest_checkpoint(folder)


def lineage(folder: RunFolder) -> Iterator[Path]:
    with suppress(RecordError):
        lineage_checkpoint(folder)
        stored = read_record(folder)
        names = (*stored.lineage, *([stored.parent] if stored.parent else []))
        yield from (folder.path.with_name(name) for name in names)


EVENTS = (
    Launched(t=1.0, pid=5, argv=("python",)),
    Started(t=2.0, rank=0, pid=6, host="box"),
    Checkpoint(t=3.0, step=1, path="/w/checkpoint-1"),
    Saved(t=4.0, step=2, path="/w/last.pt"),
    Exited(t=5.0, exit_code=1, signal=9),
    FellBack(t=6.0, into="r002", number=1, most=2),
)
SPEC = LaunchSpec(("python",), "/w", {"A": "b"}, ends_with=ProcessId(5, 6))
PROCESS = ProcessSpec(CommandJob(command=("python",), env={"CUDA_VISIBLE_DEVICES": "0"}), {"A": "b"})
TUNING = TuningRecord(
    id="t001",
    title="t",
    created_t=1.0,
    job=record().job,
    resolved=record().resolved,
    cwd="/w",
    interpreter="/p",
    gpu_uuids=("GPU-1",),
)
READERS = (
    Reader("run.json", "", lambda folder: read_record(folder), (RecordError,)),
    Reader("run.json", "", whole_folder),
    Reader("state.json", "", whole_folder),
    Reader("state.json", "", lambda folder: read_supervisor_state(folder.state)),
    Reader("control", "stop", lambda folder: read_order(folder.control)),
    Reader("queue.json", "", lambda folder: read_queued(folder), (QueueError,)),
    Reader("slurm.json", "", lambda folder: read_job(folder.path)),
    Reader("slurm.json", "", read_status),
    *(Reader("events.jsonl", line(encode_event(event)), whole_folder) for event in EVENTS),
    Reader("samples.jsonl", line(encode_sample(Sample(3.0))), whole_folder),
    Reader("x.start", json.dumps(to_json(SPEC)), lambda folder: load_launch_spec(content(folder)), (ValueError,)),
    Reader("x.start", line(PROCESS.dump()), lambda folder: ProcessSpec.load(content(folder)), (ValueError,)),
    Reader("x.start", line(PROCESS.dump()), lambda folder: bound_fallback(content(folder), "GPU-1"), (ValueError,)),
    Reader("trainer_state.json", '{"global_step": 5}', lambda folder: read_checkpoint(folder.path)),
    Reader(
        "model.safetensors.index.json",
        '{"weight_map": {"a": "model-1.safetensors"}}',
        lambda folder: read_checkpoint(with_state(folder)),
    ),
    Reader(
        "tuning.json", json.dumps(to_builtins(TUNING) | {"settings": {}}),
        lambda folder: read_tuning_record(TuningFolder(folder.path)),
        (RecordError,),
    ),
    Reader(
        "x.start", line(encode_entry(TuningEnded(t=1.0, status="finished", preset="/p.yaml"))),
        lambda folder: decode_entry(content(folder)),
    ),
    Reader(
        "x.start",
        json.dumps({"format": 1, "stamps": {}, "answer": to_json(Interpreter("/p", "3.11", {"torch": "2"}))}),
        lambda folder: interpreter_from_answer(Path("/p"), ProbeCacheEntry(folder.path / "x.start").read() or {}, None),
    ),
    Reader(
        "x.start", '{"sample": {"time_s": 1.0, "gpus": [{"index": 0, "name": "A"}]}, "jobs": []}',
        lambda folder: parse_machine(content(folder).decode()), (ValueError,),
    ),
    Reader(
        "x.yaml", '{"settings": {"optim": "sgd"}, "job": {"kind": "command", "command": ["python"], "cwd": "/w"}}',
        lambda folder: load_preset(folder.path / "x.yaml"), (SettingsError,),
    ),
)  # fmt: skip


def content(folder: RunFolder) -> bytes:
    return (folder.path / "x.start").read_bytes()


def with_state(folder: RunFolder) -> Path:
    (folder.path / "trainer_state.json").write_text('{"global_step": 5}')
    (folder.path / "optimizer.pt").touch()
    return folder.path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that completed, was queued and submitted."""
    folder = whole_run(tmp_path_factory.mktemp("state") / "runs")
    write_queued(folder, QueuedRun(1.0, 1, ("GPU-1",), "r000"))
    write_job(folder.path, SlurmJob(1.0, "17", continued_by="r002"))
    return folder


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a document."""
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = dict(document) if isinstance(document, dict) else list(document)
    changed[path[0]] = with_value(changed[path[0]], path[1:], value)
    return changed


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_one_hostile_value(run: RunFolder, reader: Reader, data: st.DataObject) -> None:
    path = run.path / reader.name
    before = path.read_bytes() if path.exists() else None
    valid = reader.valid or (before or b"").decode()
    try:
        document = json.loads(valid)
        where = data.draw(st.sampled_from(list(places(document))))
        text = json.dumps(with_value(document, where, data.draw(VALUES)))
    except ValueError:
        text = str(data.draw(VALUES))
    try:
        path.write_text(text, errors="replace")
        with suppress(*reader.raises):
            reader.read(run)
    finally:
        path.unlink() if before is None else path.write_bytes(before)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(content=NESTED.encode())
@example(content=b"9" * 5000)
@example(content=b"\xff\xfe\x00")
@given(content=st.binary(max_size=100))
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_any_bytes(run: RunFolder, reader: Reader, content: bytes) -> None:
    path = run.path / reader.name
    before = path.read_bytes() if path.exists() else None
    try:
        path.write_bytes(content)
        with suppress(*reader.raises):
            reader.read(run)
    finally:
        path.unlink() if before is None else path.write_bytes(before)


@pytest.mark.parametrize("name", [value for value in HOSTILE if isinstance(value, str) and value != "nan"])
def test_a_name_that_is_a_path_is_no_run(run: RunFolder, name: str) -> None:
    """Each name that a file gives to another run."""
    fell_back = encode_event(replace(EVENTS[-1], into=name)) if isinstance(EVENTS[-1], FellBack) else b""
    run.events.write_bytes(fell_back)
    write_job(run.path, SlurmJob(1.0, "17", continued_by=name))
    assert continuation_of(run, RunReader(run).poll().state) is None
    write_queued(run, QueuedRun(1.0, 1, (), after=name))
    with pytest.raises(QueueError):
        read_queued(run)
    stored = json.loads(run.record.read_text())
    for key, value in (("parent", name), ("lineage", [name]), ("id", name), ("tuning", name)):
        related = whole_run(run.path.parent)
        related.record.write_text(json.dumps({**stored, key: value}))
        with pytest.raises(RecordError, match=key):
            read_record(related)


@pytest.mark.parametrize("pid", [-1, -(2**31), 2**31, 10**30, 1.5, "1", True, None])
def test_what_is_no_process_is_none(run: RunFolder, pid: object) -> None:
    state = {"v": 1, "machine": to_json(this_machine()), "started_t": 1.0, "supervisor": {"pid": pid, "start_ticks": 1}}
    run.state.write_text(json.dumps(state))
    assert read_supervisor_state(run.state) is None
