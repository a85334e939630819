"""What the words of `tuner-tui run` ask to be launched."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from tuner_tui.advice.recommend.recommendation import with_recommended
from tuner_tui.advice.recommend.target import limit_gpu_memory
from tuner_tui.cli.box import ReadBox, this_box
from tuner_tui.cli.job_words import NOTHING_SAID, JobWords, job_for
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.store.folder import RunFolder, RunNotFoundError, find_run, runs_dir
from tuner_tui.runs.store.record import RecordError, RunRecord, read_record
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.oom_fallback import with_fallback
from tuner_tui.settings.origin import Resolved
from tuner_tui.settings.presets.library import find_preset
from tuner_tui.settings.presets.preset import Preset
from tuner_tui.settings.resolve import PROJECT_FILE, parse_flags, resolve

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "t": 10**12}


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line of `run`, as typed."""

    job: JobWords = NOTHING_SAID
    preset: str | None = None
    values: tuple[str, ...] = ()
    resume: str | None = None
    memory_limit: str | None = None
    interpreter: Path | None = None
    fallback: int | None = None


def request_for(asked: Asked, read_box: ReadBox = this_box) -> LaunchRequest:
    """The launch that is asked for. Raises `SettingsError` with one sentence for what is wrong with it.

    A new training by the built-in job gets what is recommended for the box where nobody said anything else.
    """
    limit = None if asked.memory_limit is None else parse_size(asked.memory_limit)
    preset = None if asked.preset is None else find_preset(asked.preset).preset
    parent = None if asked.resume is None else _run(asked.resume)
    record = None if parent is None else _record(parent)
    job = with_fallback(job_for(asked.job, preset, record), asked.fallback, os.environ)
    resolved = _resolved(asked, preset, record)
    if record is None and isinstance(job, BuiltinJob):
        box = read_box(asked.interpreter)
        resolved = with_recommended(resolved, limit_gpu_memory(box.inventory, limit), box.interpreter, job)
    return LaunchRequest(
        job=job,
        resolved=resolved,
        interpreter=asked.interpreter or (Path(record.interpreter) if record is not None else None),
        cwd=Path.cwd() if record is None or asked.job.command else Path(record.cwd),
        preset=asked.preset or (None if record is None else record.preset),
        memory_limit_bytes=limit if limit is not None or record is None else record.memory_limit_bytes,
        parent=parent,
    )


def parse_size(text: str, flag: str = "--memory-limit") -> int:
    """Bytes from `6GiB`, `6.5 GB`, `800M` or a plain number of bytes; raises `SettingsError`, which names `flag`.

    Less than 1 MiB is refused: whoever writes 24 means another unit than bytes.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", text.strip().lower())
    size = int(float(found[1]) * UNITS[found[2] or ""]) if found else 0
    if size <= 0:
        raise SettingsError(f"{flag} {text!r} is no size; write one such as 6GiB or 800MB.")
    if size < 1 << 20:
        raise SettingsError(f"{flag} {text!r} is {size:,} bytes; write the unit, such as 6GiB or 800MB.")
    return size


def _resolved(asked: Asked, preset: Preset | None, record: RunRecord | None) -> Resolved:
    flags = parse_flags(asked.values)
    if record is None:
        return resolve(flags=flags, environment=os.environ, project=Path(PROJECT_FILE), preset=preset)
    changes = resolve(flags=flags, preset=preset)
    values = {name: getattr(changes.settings, name) for name in changes.origins}
    settings = record.resolved.settings.changed(**values)
    return replace(record.resolved, settings=settings, origins={**record.resolved.origins, **changes.origins})


def _run(name: str) -> RunFolder:
    try:
        return find_run(name, runs_dir())
    except RunNotFoundError as error:
        raise SettingsError(str(error)) from error


def _record(folder: RunFolder) -> RunRecord:
    try:
        return read_record(folder)
    except RecordError as error:
        raise SettingsError(str(error)) from error
