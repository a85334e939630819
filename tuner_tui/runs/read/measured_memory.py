"""Peak memory of earlier runs of a job, read from the ends of their event files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from tuner_tui.core.line_files import LineTail
from tuner_tui.core.procfs import this_machine
from tuner_tui.core.units import GIB, parse_size
from tuner_tui.memory.calibration import MeasuredRun
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Event, Finished, OutOfMemory, Steps
from tuner_tui.runs.read.event_sampling import NEWEST
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.store.codec import decode_events
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.record import RunRecord, recorded_runs, redact_job
from tuner_tui.settings.command_training import own_settings
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job, same_training
from tuner_tui.settings.model import Value

MAX_RUNS = 20
"""A tuning has about 15 trials, and their smallest and largest batches come first."""
END_BYTES = 256 << 10
"""Hundreds of lines: counters are among them, whatever else the end of a run writes."""
MIN_STEPS = 2
"""From the second step on, optimizer states exist during forward and backward."""
MICRO = "per_device_train_batch_size"
ON_GPU = re.compile(r"\b(?:CUDA|HIP)\b|\bGPU\b")
TAKEN_BY_OTHERS = re.compile(r"Process \d+ has ")
"""In the allocator's message: another program held the memory that was missing."""
CAPACITY = re.compile(r"total capaci?ty of ([\d.]+) GiB|([\d.]+) GiB total capacity")
"""In the allocator's message: the memory of the GPU."""
ALLOCATED = re.compile(r"([\d.]+ [KMGT]?i?B) (?:is allocated by PyTorch|already allocated)")
"""In the allocator's message: what its tensors took."""
HOST_REQUEST = re.compile(r"DefaultCPUAllocator: .*?tried to allocate (\d+) bytes")
OTHERS_SHARE = 2
"""A process that ran out of host memory had at most so many times what it held: others may hold as much."""


def measured_runs(job: Job, root: Path) -> tuple[MeasuredRun, ...]:
    """Runs of the same task and model, or of the same command, newest first.

    Runs of a command have the settings that it names itself, and the micro batch that was observed. At most `MAX_RUNS`.
    """
    command_settings = own_settings(job)
    same = ((folder, record) for folder, record in recorded_runs(root) if _same_job(record.job, job))
    measured = ((measured_run(folder, record), folder, record) for folder, record in same)
    runs = (
        _with_own_settings(run, folder, record, command_settings) if isinstance(record.job, CommandJob) else run
        for run, folder, record in measured
        if run is not None
    )
    return tuple(islice(runs, MAX_RUNS))


def measured_run(folder: RunFolder, record: RunRecord) -> MeasuredRun | None:
    """Memory used by one run so far; None before `MIN_STEPS` steps, unless it ran out of memory."""
    by_rank = [_last_events(path) for path in folder.event_files()]
    counters = (next((event for event in reversed(events) if isinstance(event, Steps)), None) for events in by_rank)
    ranks = [steps for steps in counters if steps is not None]
    last = max(ranks, key=lambda steps: steps.allocated_peak_bytes or 0, default=None)  # that of the fullest GPU
    messages = _out_of_memory_words(list(chain(*by_rank)))
    is_shared = record.host != this_machine().host or any(map(TAKEN_BY_OTHERS.search, messages))
    words = () if is_shared else messages  # else they say nothing of the memory here
    on_gpu = last is not None and last.allocated_peak_bytes is not None
    ran_out: Literal["gpu", "host"] | None = None
    if words:
        ran_out = "gpu" if on_gpu or any(map(ON_GPU.search, words)) else "host"
    elif last is None or last.own_steps < MIN_STEPS:
        return None
    resident = sum(steps.rss_peak_bytes or 0 for steps in ranks) // max(1, len(ranks))
    limits = (record.memory_limit_bytes, _capacity(words), _reached(words, last))
    return MeasuredRun(
        folder.id,
        record.resolved.settings,
        tensor_bytes=None if last is None else last.allocated_peak_bytes,
        reserved_bytes=None if last is None else last.reserved_peak_bytes,
        resident_bytes=None if on_gpu or any(map(ON_GPU.search, messages)) or not resident else resident,
        ran_out=ran_out,
        limit_bytes=min(filter(None, limits), default=None),
        processes=max(1, len(ranks)),
    )


def lacks_gpu_peak(state: RunState) -> bool:
    """Whether the memory of a GPU ran out, but only that of the host was measured: the run's peak is not known."""
    measured = any(counters.allocated_peak_bytes is not None for counters in state.counters)
    return any(map(ON_GPU.search, _words_at_failure(state))) and not measured


def allocated_at_failure(state: RunState) -> int | None:
    """Return what the tensors took of the GPU whose memory ran out, by its message; None where it does not say it."""
    matches = filter(None, map(ALLOCATED.search, _words_at_failure(state)))
    return next((parse_size(match[1]) for match in matches), None)


def _words_at_failure(state: RunState) -> Sequence[str]:
    return _out_of_memory_words([event for event in (state.finished, state.out_of_memory) if event is not None])


def _last_events(path: Path) -> list[Event]:
    tail = LineTail(path)
    tail.skip_to(max(0, tail.size() - END_BYTES))  # the torn line there decodes to nothing
    lines = (line for line in tail.lines() if any(kind in line for kind in (b'"steps"', b'"finished"', b"memory")))
    return list(decode_events(lines))


def _out_of_memory_words(events: Sequence[Event]) -> Sequence[str]:
    """What a run said that ran out of memory; nothing for others."""
    ended = next((event for event in reversed(events) if isinstance(event, Finished)), None)
    if ended is None or ended.outcome != "out-of-memory":
        return ()
    return [ended.sentence, *(event.message for event in events if isinstance(event, OutOfMemory))]


def _capacity(words: Sequence[str]) -> int | None:
    """The memory of the smallest GPU that ran out, where its message says it."""
    matches = filter(None, map(CAPACITY.search, words))
    return min((round(float(match[1] or match[2]) * GIB) for match in matches), default=None)


def _reached(words: Sequence[str], last: Steps | None) -> int | None:
    """The most host memory that there can have been for a process of which an allocation failed."""
    # A limit of the process (`ulimit -d`, `ulimit -v`) is far below the memory of the machine, of which such a run says
    # nothing.
    requests = [int(match[1]) for match in filter(None, map(HOST_REQUEST.search, words))]
    if last is None or last.rss_peak_bytes is None or not requests:
        return None
    return OTHERS_SHARE * (last.rss_peak_bytes + max(requests))


def _with_own_settings(
    run: MeasuredRun, folder: RunFolder, record: RunRecord, command_settings: Mapping[str, Value]
) -> MeasuredRun:
    """Replaces defaults by `command_settings`, and the micro batch by the observed one; 0 if that is not known."""
    (reader := RunReader(folder, NEWEST)).events()
    seen = reader.state.in_effect.get(MICRO)
    settings = record.resolved.passed(command_settings)
    if type(seen) is int or MICRO not in record.resolved.given:
        settings = replace(settings, per_device_train_batch_size=seen if type(seen) is int else 0)
    return replace(run, settings=settings)


def _same_job(recorded: Job, job: Job) -> bool:
    if isinstance(recorded, BuiltinJob) and isinstance(job, BuiltinJob):
        return (recorded.task, recorded.model) == (job.task, job.model)
    return same_training(recorded, redact_job(job))
