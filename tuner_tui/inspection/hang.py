"""Why a training does not move, from what its processes say at one moment.

Several ranks: the oldest collective that a rank waits in decides. A rank that has not come to it, or that is in another
one with the same number, is what the others wait for, and its own stack says what it does instead. A single process:
its main thread says what it waits for; if that is data, its loader workers say why there is none.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.files import parse_data_file
from tuner_tui.core.text import name_ranks
from tuner_tui.core.units import format_short_duration
from tuner_tui.hardware.processes import LOADER_WORKER
from tuner_tui.inspection.process_dump import (
    ProcessDump,
    RecordedCollective,
    RecordedCollectives,
    StackFrame,
    ThreadStack,
)

BUSY_SHARE = 0.5
"""Of one core: a process above it computes, whatever its stack says."""
TABLE = Path(__file__).with_name("activities.yaml")


class Activity(Struct, frozen=True):
    """`name` and `phrase` of an entry of the table, or `idle`, `computing` or `other`; the user's call."""

    name: str
    phrase: str
    frame: StackFrame | None

    def __str__(self) -> str:
        return self.phrase if self.frame is None else f"{self.phrase} in {self.frame}"


class _Pattern(Struct, frozen=True, kw_only=True):
    activity: str
    phrase: str
    file: re.Pattern[str] = re.compile("")
    function: re.Pattern[str] = re.compile("")
    source: re.Pattern[str] | None = None
    kernel: re.Pattern[str] | None = None
    within: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether a thread that does this uses no processor time."""
        return self.kernel is not None or self.activity in ("lock", "queue")

    def matches(self, stack: ThreadStack, source_line: str, kernel_wait: str) -> bool:
        if self.kernel is not None:
            return self.kernel.search(kernel_wait) is not None
        if self.source is not None:
            waits_itself = bool(stack.frames) and not stack.frames[0].is_library
            return waits_itself and self.source.search(source_line) is not None
        frames = stack.frames[: self.within]
        return any(self.file.search(frame.file) and self.function.search(frame.function) for frame in frames)


def read_source_line(frame: StackFrame) -> str:
    """The line of the file, empty where it cannot be read."""
    return "" if frame.line is None else linecache.getline(frame.file, frame.line)


def find_activity(process: ProcessDump, read_line: Callable[[StackFrame], str] = read_source_line) -> Activity:
    """What the main thread of `process` does; a loader worker is `idle` between two batches."""
    if process.is_loader_worker:
        process = process.in_data_set()
        if process.main.own_frame is None:
            return Activity("idle", "waits for work", None)
    stack = process.main
    frame = stack.own_frame or next(iter(stack.frames), None)
    if process.state == "D":
        return Activity("storage", "waits for a disk or a driver (state D)", frame)
    line = "" if stack.own_frame is None else read_line(stack.own_frame)
    pattern = next((pattern for pattern in _patterns() if pattern.matches(stack, line, process.kernel_wait)), None)
    computes = process.cpu_share > BUSY_SHARE
    if pattern is not None and not (computes and pattern.is_idle):
        return Activity(pattern.activity, pattern.phrase, frame)
    if computes:
        return Activity("computing", "computes", frame)
    return Activity("other", "waits" if process.threads else process.silence or "did not answer", frame)


@cache
def _patterns() -> tuple[_Pattern, ...]:
    patterns = []
    for row in parse_data_file(TABLE):
        fields: dict[str, Any] = {name: row[name] for name in _Pattern.__struct_fields__ if name in row}
        fields |= {name: re.compile(row[name]) for name in ("file", "function", "source", "kernel") if name in row}
        patterns.append(_Pattern(**fields))
    return tuple(patterns)


HangKind = Literal[
    "rank-died", "rank-missing", "rank-alone", "other-collective", "other-shape", "uneven-batches", "other-group",
    "worker-died", "data-stuck", "data", "lock", "queue", "storage", "network", "sleep", "debugger", "child-process",
    "computing", "unknown",
]  # fmt: skip

SAME_SIZES = ("all_reduce", "broadcast", "reduce", "all_gather", "allgather", "reduce_scatter", "_all_gather_base")
"""Collectives in which the tensors of all ranks must have one size."""
NEVER_ENDS: tuple[HangKind, ...] = (
    "rank-died", "other-collective", "other-shape", "other-group", "uneven-batches", "worker-died", "debugger",
)  # fmt: skip
QUEUE_CALLS = 5
"""Innermost calls among which that of the queue or the pipe is."""
OF_ACTIVITY: Mapping[str, HangKind] = {
    "debugger": "debugger", "storage": "storage", "network": "network", "lock": "lock", "queue": "queue",
    "sleep": "sleep", "child process": "child-process", "computing": "computing", "saving": "computing",
    "evaluating": "computing", "compiling": "computing",
}  # fmt: skip


class Hang(Struct, frozen=True):
    """The answer. `sentence` says who waits for what; `evidence` names file and line of each side.

    `culprits` are the pids that the others wait for, `marks` what must not change for the hang to be the same one when
    it is looked at again.
    """

    kind: HangKind
    sentence: str
    evidence: tuple[str, ...] = ()
    culprits: tuple[int, ...] = ()
    marks: tuple[str, ...] = ()

    @property
    def may_go_on(self) -> bool:
        """Whether a healthy training does it for a while, too: work, a pause, one rank that evaluates or saves."""
        return self.kind in ("computing", "sleep", "data", "rank-alone")

    @property
    def is_certain(self) -> bool:
        """Whether it names something that waiting does not end, in whatever phase the training is."""
        return self.kind in NEVER_ENDS


def explain_hang(
    processes: Sequence[ProcessDump],
    now_s: float,
    epoch_batches: Mapping[int, int] | None = None,
    dead_ranks: Collection[int] = (),
    read_line: Callable[[StackFrame], str] = read_source_line,
) -> Hang:
    """Explain `processes`, those of one training on this machine.

    `epoch_batches`: the length of each rank's data loader, where it is known. `dead_ranks`: ranks whose process is gone
    without a word.
    """
    ranks = {process.rank: process for process in processes if process.rank is not None}
    look = _Look(processes, now_s, read_line)
    if len(ranks) + len(dead_ranks) > 1:
        return _explain_ranks(ranks, look, epoch_batches or {}, frozenset(dead_ranks))
    roots = list(ranks.values()) or [process for process in processes if process.threads][:1]
    if not roots:
        silences = (
            f"process {process.pid} ({process.name}): {process.silence}" for process in processes if process.silence
        )
        return Hang("unknown", "No process of the training answered.", tuple(silences))
    return look.at_process(roots[0])


class _Look(Struct, frozen=True):
    processes: Sequence[ProcessDump]
    now_s: float
    read_line: Callable[[StackFrame], str]

    def activity(self, process: ProcessDump) -> Activity:
        return find_activity(process, self.read_line)

    def at_process(self, process: ProcessDump, subject: str = "The training") -> Hang:
        """Why one process does not go on."""
        activity = self.activity(process)
        if activity.name == "data":
            return self._at_loader(process, activity, subject)
        children = self._children(process)
        evidence = tuple(
            f"process {child.pid}: {self.activity(child)}"
            for child in children
            if activity.name in ("child process", "queue") and (child.threads or child.state in "ZX")
        )
        culprits, marks = (process.pid,), tuple(map(str, process.main.frames[:3]))
        # A queue of threads, and one that a thread of this process may fill, ends with no child process.
        between_processes = any("/multiprocessing/" in frame.file for frame in process.main.frames[:QUEUE_CALLS])
        writes = any(child.state not in "ZX" for child in children)
        writes = writes or any(thread.own_frame for thread in process.threads[1:])
        if activity.name == "queue" and evidence and between_processes and not writes:
            sentence = f"{subject} {activity}, but no child process is left that could write to it."
            return Hang("worker-died", sentence, evidence, culprits, marks)
        return Hang(OF_ACTIVITY.get(activity.name, "unknown"), f"{subject} {activity}.", evidence, culprits, marks)

    def _children(self, process: ProcessDump) -> list[ProcessDump]:
        return [child for child in self.processes if child.parent == process.pid]

    def _at_loader(self, process: ProcessDump, activity: Activity, subject: str) -> Hang:
        children = self._children(process)
        workers = {child.pid: self.activity(child) for child in children if child.is_loader_worker}
        dead = sum(child.state in "ZX" and child.name == LOADER_WORKER for child in children)
        culprits, marks = (process.pid,), (str(process.main.own_frame),)
        if dead or (not workers and any(frame.function == "_try_get_data" for frame in process.main.frames)):
            number = f"{dead} of its loader workers" if dead else "all loader workers"
            return Hang("worker-died", f"{subject} {activity}, but {number} died.", (), culprits, marks)
        busy = {pid: doing for pid, doing in workers.items() if doing.name != "idle"}
        if not workers:  # the data is made in the process itself
            inside = find_activity(process.in_data_set(), self.read_line)
            kinds: Mapping[str, HangKind] = {"computing": "data", "idle": "data", "debugger": "debugger"}
            kind = kinds.get(inside.name, "data-stuck")
            return Hang(kind, f"{subject} waits for its own dataset, which {inside}.", (), culprits, marks)
        if not busy:
            sentence = f"{subject} {activity}, but its {len(workers)} loader workers have nothing to do."
            return Hang("unknown", sentence, (), culprits, marks)
        first = next(iter(busy.values()))
        sentence = f"{subject} waits for data: {len(busy)} of {len(workers)} loader workers have work; one {first}."
        computes = any(doing.name == "computing" for doing in busy.values())
        return Hang(
            "data" if computes else "lock" if {doing.name for doing in busy.values()} == {"lock"} else "data-stuck",
            sentence,
            tuple(f"loader worker {pid}: {doing}" for pid, doing in busy.items()),
            tuple(busy),
            (*marks, *(str(doing.frame) for doing in busy.values())),
        )


def _explain_ranks(
    ranks: Mapping[int, ProcessDump], look: _Look, epoch_batches: Mapping[int, int], dead: frozenset[int]
) -> Hang:
    records = {rank: process.collectives for rank, process in ranks.items() if process.collectives is not None}
    pending = {rank: entry for rank, record in records.items() if (entry := record.pending()) is not None}
    if not pending:
        return _without_record(ranks, look, dead)
    # The oldest collective that somebody waits in; later ones of the same rank wait behind it.
    first = min(pending.values(), key=lambda entry: entry.created_s)
    waiting = {rank: entry for rank, entry in pending.items() if entry.group == first.group}
    number = min(entry.number for entry in waiting.values())
    reached = {rank: entry for rank, record in records.items() if (entry := record.entry(first.group, number))}
    members = {rank for record in records.values() for rank in record.groups.get(first.group, ())}
    members = members or (set(records) | set(ranks) | dead)  # the record does not name them
    missing = sorted(member for member in members if member not in reached)
    entry = next(iter(reached.values()), first)
    evidence = [_waits(rank, ranks[rank], reached[rank], look) for rank in sorted(waiting) if rank in reached]
    marks = (f"{first.group}:{number}",)
    if gone := [rank for rank in missing if rank in dead]:
        sentence = f"{name_ranks(gone).capitalize()} died; the others wait for it in {entry}."
        return Hang("rank-died", sentence, tuple(evidence), (), marks)
    if uneven := _uneven(epoch_batches, ranks):
        culprits = tuple(ranks[rank].pid for rank in missing if rank in ranks)
        return Hang("uneven-batches", uneven, tuple(evidence), culprits, marks)
    if not missing:
        return _explain_mismatch(reached, ranks, look, marks)
    return _explain_missing(missing, entry, ranks, records, look, evidence, marks)


def _explain_missing(
    missing: Sequence[int],
    entry: RecordedCollective,
    ranks: Mapping[int, ProcessDump],
    records: Mapping[int, RecordedCollectives],
    look: _Look,
    evidence: list[str],
    marks: tuple[str, ...],
) -> Hang:
    """Ranks that have not come to the collective `entry`."""
    waited = format_short_duration(max(0.0, look.now_s - entry.created_s))
    have = "has" if len(missing) == 1 else "have"
    absent = f"{name_ranks(missing).capitalize()} {have} not reached {entry}, where the others have waited for {waited}"
    elsewhere = {rank: wait for rank in missing if rank in records and (wait := records[rank].pending()) is not None}
    if elsewhere:  # it waits, too: in a collective of another process group
        rank, wait = next(iter(elsewhere.items()))
        evidence.append(_waits(rank, ranks[rank], wait, look))
        sentence = (
            f"Rank {rank} waits in {wait} of another process group, and the others in {entry} for {waited}: the "
            "ranks call the collectives of two groups in different orders, or one skips a call."
        )
        return Hang("other-group", sentence, tuple(evidence), (ranks[rank].pid,), (*marks, str(wait)))
    answered = [rank for rank in missing if rank in ranks and ranks[rank].threads]
    if not answered:
        silent = [ranks[rank] for rank in missing if rank in ranks]
        reason = f": {silent[0].silence}" if silent else ""
        sentence = f"{absent}{reason}."
        return Hang("rank-missing", sentence, tuple(evidence), tuple(process.pid for process in silent), marks)
    rank = answered[0]
    cause = look.at_process(ranks[rank], f"Rank {rank}")
    evidence += [f"rank {rank}: {look.activity(ranks[rank])}" for rank in answered]
    evidence += [line for line in cause.evidence if line.startswith("loader worker")]
    doing = cause.sentence.removeprefix(f"Rank {rank} ").rstrip(".")
    sentence = f"{absent}: rank {rank} {doing}."
    alone = look.activity(ranks[rank]).name in ("evaluating", "saving")
    kind: HangKind = "rank-alone" if alone else "rank-missing" if cause.kind == "unknown" else cause.kind
    return Hang(kind, sentence, tuple(evidence), cause.culprits, (*marks, *cause.marks))


def _explain_mismatch(
    reached: Mapping[int, RecordedCollective], ranks: Mapping[int, ProcessDump], look: _Look, marks: tuple[str, ...]
) -> Hang:
    """All ranks wait in a collective of the same number: they are not the same one, or it just takes long."""
    first, entries = next(iter(reached.values())), sorted(reached.items())
    evidence = tuple(_waits(rank, ranks[rank], entry, look) for rank, entry in entries)
    called = f"The ranks called {first} with tensors"
    operations = [(rank, entry.operation) for rank, entry in entries]
    types = [(rank, entry.types) for rank, entry in entries]
    sizes = [(rank, entry.sizes) for rank, entry in entries if first.operation in SAME_SIZES]
    comparisons: tuple[tuple[HangKind, str, str, list[tuple[int, str]]], ...] = (
        ("other-collective", f"The ranks differ in collective no. {first.number}", "in", operations),
        ("other-shape", f"{called} of other types", "gave", types),
        ("other-shape", f"{called} of another size", "gave", sizes),
    )
    for kind, difference, verb, values in comparisons:
        groups: dict[str, list[int]] = {}
        for rank, value in values:
            groups.setdefault(value, []).append(rank)
        if len(groups) > 1:
            parts = "; ".join(f"{name_ranks(members)} {verb} {value}" for value, members in groups.items())
            cause = " One skips a call, or calls in another order." if kind == "other-collective" else ""
            minority = tuple(ranks[rank].pid for rank in min(groups.values(), key=len))
            return Hang(kind, f"{difference}: {parts}.{cause}", evidence, minority, marks)
    return Hang("unknown", f"All ranks are in {first}: the transfer itself does not end.", evidence, (), marks)


def _without_record(ranks: Mapping[int, ProcessDump], look: _Look, dead: frozenset[int]) -> Hang:
    """No rank waits in a recorded collective: an old torch, or none has come to one."""
    activities = {rank: look.activity(process) for rank, process in sorted(ranks.items())}
    evidence = tuple(f"rank {rank}: {activity}" for rank, activity in activities.items())
    marks = tuple(str(activity.frame) for activity in activities.values())
    waiting = [rank for rank, activity in activities.items() if activity.name == "collective"]
    others = [rank for rank in activities if rank not in waiting]
    if dead:
        return Hang("rank-died", f"{name_ranks(sorted(dead)).capitalize()} died; the others wait.", evidence, (), marks)
    if not others:
        return Hang("unknown", "All ranks wait for each other; PyTorch has no record of what for.", evidence, (), marks)
    cause = look.at_process(ranks[others[0]], f"Rank {others[0]}")
    if not waiting:
        return replace(cause, evidence=evidence + cause.evidence)
    wait = f"{name_ranks(waiting).capitalize()} wait{'s' if len(waiting) == 1 else ''}"
    sentence = f"{wait} for {name_ranks(others)}. {cause.sentence}"
    kind: HangKind = "rank-missing" if cause.kind == "unknown" else cause.kind
    return Hang(kind, sentence, evidence + cause.evidence, cause.culprits, marks)


def _uneven(epoch_batches: Mapping[int, int], ranks: Mapping[int, ProcessDump]) -> str | None:
    lengths = {rank: epoch_batches[rank] for rank in ranks if rank in epoch_batches}
    if len(set(lengths.values())) < 2:
        return None
    least, most = min(lengths, key=lambda rank: lengths[rank]), max(lengths, key=lambda rank: lengths[rank])
    return (
        f"The data loaders of the ranks differ in length: rank {least} has {lengths[least]:,} batches, rank {most} "
        f"{lengths[most]:,}. Whoever has more waits for the others at the end."
    )


def _waits(rank: int, process: ProcessDump, entry: RecordedCollective, look: _Look) -> str:
    wait = format_short_duration(max(0.0, look.now_s - entry.created_s))
    tensors = f" ({entry.sizes} {entry.types})" if entry.types else ""
    return f"rank {rank}: in {entry}{tensors} for {wait}, called by {process.main.own_frame}"
