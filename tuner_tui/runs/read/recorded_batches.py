"""Reads what the observer recorded: the rows of single steps, the state of the training, and what held its memory.

By the states of a run and of the one that it goes on from, it says whether it does so faithfully.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.json import Decoder

from tuner_tui.core.files import read_data_file, read_regular
from tuner_tui.inspection.faithful_resume import STEPS, Part, RankHistory, ResumeCheck, TrainingState, compare_resumed
from tuner_tui.inspection.first_non_finite import Replay, ReplayReport
from tuner_tui.inspection.peak_memory import RecordedPeak, parse_peak
from tuner_tui.inspection.suspect_batches import NO_SUSPECTS, StepBatch, Suspects, find_suspects
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.read.checkpoints import FILE, read_checkpoint, reported_checkpoints
from tuner_tui.runs.store.folder import RunFolder, list_runs
from tuner_tui.runs.store.record import RunRecord, readable_record

T = TypeVar("T")
MAX_BYTES = 4 << 20
"""Of a file; the observer writes a quarter of it."""


def read_batches(folder: RunFolder) -> list[StepBatch]:
    """Return the steps that are still recorded, oldest first, of all ranks; lines that cannot be read are skipped."""
    batches = []
    for path in sorted(folder.path.glob("batches-rank*.jsonl")):
        rank = path.stem.removeprefix("batches-rank")
        for part in (path.with_name(f"{path.name}.old"), path):
            if rank.isdecimal():
                batches += _read(part, StepBatch, rank=int(rank))
    return sorted(batches, key=lambda batch: (batch.step, batch.rank))


def read_states(folder: RunFolder, rank: int) -> list[TrainingState]:
    """Return the states of a rank in the order of writing."""
    return _read(folder.path / f"states-rank{rank}.jsonl", TrainingState)


def read_peaks(folder: RunFolder, state: RunState) -> tuple[RecordedPeak, ...]:
    """What held the memory of each rank that was recorded, the fullest first: of the run, or of its automatic retry."""
    retry = None if state.fell_back is None else folder.path.with_name(state.fell_back.into)
    for path in filter(None, (folder.path, retry)):
        recorded = (_read_json(file, parse_peak) for file in path.glob("memory-rank*.json"))
        if peaks := [peak for peak in recorded if peak is not None]:
            return tuple(sorted(peaks, key=lambda peak: -peak.peak_bytes))
    return ()


def read_suspects(folder: RunFolder, state: RunState) -> Suspects:
    """Return what the steps of a run say of its losses and its failure; read again only when they have changed.

    Only an exception explains a step that never came: a run that ends well leaves batches that were loaded ahead.
    """
    failed = state.raised is not None or state.out_of_memory is not None
    try:
        newest_ns = max((path.stat().st_mtime_ns for path in folder.path.glob("batches-rank*.jsonl")), default=0)
    except OSError:
        return NO_SUSPECTS
    return _cached_suspects(folder, failed, newest_ns)


def read_rank_reports(folder: RunFolder) -> list[ReplayReport]:
    """Return what the ranks of a replay, whose folder this is, have written so far."""
    reports = (_read_json(path, Decoder(ReplayReport).decode) for path in sorted(folder.path.glob("replay-rank*.json")))
    return [report for report in reports if report is not None]


def read_replay(folder: RunFolder) -> Replay | None:
    """Return the result of the last replay of a run."""
    return _read_json(folder.replay, Decoder(Replay).decode)


def _read_json(path: Path, parse: Callable[[bytes], T]) -> T | None:
    try:
        return parse(read_regular(path))
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):  # not there, or of another release
        return None


@lru_cache(maxsize=4)
def _cached_suspects(folder: RunFolder, failed: bool, newest_ns: int) -> Suspects:
    return find_suspects(read_batches(folder), failed) if newest_ns else NO_SUSPECTS


def _read(path: Path, kind: type[T], **added: int) -> list[T]:
    try:
        lines = read_regular(path, MAX_BYTES).splitlines()
    except OSError:
        return []
    parsed = (_parse(line, kind, added) for line in lines)
    return [line for line in parsed if line is not None]


def _parse(line: bytes, kind: type[T], added: dict[str, int]) -> T | None:
    try:
        fields: dict[str, Any] = {**msgspec.json.decode(line), **added}
        if "losses" in fields:
            fields["losses"] = tuple(map(float, fields["losses"]))  # of text where they are not finite
        return msgspec.convert(fields, kind)
    except (msgspec.MsgspecError, TypeError, ValueError):  # half written, or of another release
        return None


MAX_PARENTS = 32
"""Newest runs that are asked for a checkpoint that a command names."""
SETTLED_STEPS = 4 * STEPS
"""After so many steps everything that is compared is written."""


def read_resume_check(folder: RunFolder, state: RunState) -> ResumeCheck | None:
    """Return what the first steps of a run say of how it resumed; None if it resumed from no run that is known.

    Read again only until `SETTLED_STEPS` steps were made, and at the end.
    """
    steps = max((counters.own_steps for counters in state.counters), default=0)
    if not steps:
        return None
    origin = _origin(folder)
    if origin is None:
        return None
    return _check(folder, *origin, state.accepts_orders, min(steps, SETTLED_STEPS), state.finished is not None)


@lru_cache(maxsize=4)
def _check(
    folder: RunFolder, parent: RunFolder, step: int, counts_on: bool, steps: int, ended: bool
) -> ResumeCheck | None:
    record = readable_record(folder)
    before, batches, earlier = readable_record(parent), read_batches(folder), read_batches(parent)
    parts: dict[Part, list[str]] = read_data_file(FILE)["settings_of_parts"]
    changed = frozenset(part for part, names in parts.items() if before and record and _differs(before, record, names))
    check = ResumeCheck(parent.id, step, min(STEPS, steps))
    ranks = _ranks(folder)
    if ranks != _ranks(parent):
        changed |= {"data", "random numbers", "loss"}  # other processes share the data in another way
    for rank in sorted(ranks):
        before_it, after_it = (
            RankHistory(read_states(run, rank), [batch for batch in recorded if batch.rank == rank])
            for run, recorded in ((parent, earlier), (folder, batches))
        )
        mismatches, compared = compare_resumed(before_it, after_it, step, counts_on=counts_on, changed=changed)
        check = ResumeCheck(parent.id, step, check.steps, mismatches, check.compared or compared)
        if mismatches:
            break
    return check


def _ranks(folder: RunFolder) -> set[int]:
    names = (path.stem.removeprefix("states-rank") for path in folder.path.glob("states-rank*.jsonl"))
    return {int(name) for name in names if name.isdecimal()}


def _differs(before: RunRecord, record: RunRecord, names: list[str]) -> bool:
    return any(
        getattr(before.resolved.settings, name, None) != getattr(record.resolved.settings, name, None) for name in names
    )


@lru_cache(maxsize=4)
def _origin(folder: RunFolder) -> tuple[RunFolder, int] | None:
    """The run that wrote the checkpoint that this one started from, and its step there."""
    record = readable_record(folder)
    if record is None:
        return None
    if record.resumed_from is not None:
        named = {Path(record.resumed_from)}
        parents = [folder.path.with_name(name) for name in reversed(record.lineage)]
    else:
        words = (word.rpartition("=")[2] for word in record.argv[1:])
        named = {path for word in words if "/" in word or "." in word if (path := Path(record.cwd, word)).exists()}
        parents = [run.path for run in list_runs(folder.path.parent) if run.path != folder.path][:MAX_PARENTS]
    for path in parents if named else ():
        run = RunFolder(path)
        for event in reversed(reported_checkpoints(run)):
            if event.step is not None and Path(event.path) in named:
                return run, event.step
    saved = read_checkpoint(Path(record.resumed_from)) if record.resumed_from is not None else None
    return None if saved is None or not parents else (RunFolder(parents[0]), saved.step)
