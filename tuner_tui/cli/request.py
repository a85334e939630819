"""What the words of `tuner-tui run` ask to be launched."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from tuner_tui.advice.recommend import with_recommended
from tuner_tui.cli.box import ReadBox, this_box
from tuner_tui.runs.folder import RunFolder, RunNotFoundError, find_run, runs_dir
from tuner_tui.runs.launch import LaunchRequest
from tuner_tui.runs.record import RecordError, RunRecord, read_record
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.fields import FIELDS, nearest
from tuner_tui.settings.job import ApplyMode, BuiltinJob, CommandJob, Job
from tuner_tui.settings.origin import Resolved
from tuner_tui.settings.preset import Preset, find_preset
from tuner_tui.settings.resolve import PROJECT_FILE, parse_flags, resolve

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "t": 10**12}
PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line of `run`, as typed."""

    command: tuple[str, ...] = ()
    preset: str | None = None
    values: tuple[str, ...] = ()
    apply: str | None = None
    resume: str | None = None
    memory_limit: str | None = None
    interpreter: Path | None = None


def request_for(asked: Asked, read_box: ReadBox = this_box) -> LaunchRequest:
    """The launch that is asked for. Raises `SettingsError` with one sentence for what is wrong with it.

    A new training by the built-in job gets what is recommended for the box where nobody said anything else.
    """
    apply = _apply_mode(asked.apply)
    limit = None if asked.memory_limit is None else parse_size(asked.memory_limit)
    preset = None if asked.preset is None else find_preset(asked.preset).preset
    parent = None if asked.resume is None else _run(asked.resume)
    record = None if parent is None else _record(parent)
    job = job_for(asked.command, apply, preset, record)
    resolved = _resolved(asked, preset, record)
    if record is None and isinstance(job, BuiltinJob):
        box = read_box(asked.interpreter)
        resolved = with_recommended(resolved, box.inventory, box.interpreter, job)
    return LaunchRequest(
        job=job,
        resolved=resolved,
        interpreter=asked.interpreter or (Path(record.interpreter) if record is not None else None),
        cwd=Path.cwd() if record is None or asked.command else Path(record.cwd),
        preset=asked.preset or (None if record is None else record.preset),
        memory_limit_bytes=limit if limit is not None or record is None else record.memory_limit_bytes,
        parent=parent,
    )


def job_for(
    command: tuple[str, ...], apply: ApplyMode | None, preset: Preset | None, record: RunRecord | None = None
) -> Job:
    """The job: the command given, with the preset's way of applying settings; else the preset's, else the parent's.

    A command that names no way takes settings by what is in it: `{config}`, `{field}`, else from within (inject).
    """
    known = preset.job if preset is not None and preset.job is not None else None if record is None else record.job
    if command:
        base = known if isinstance(known, CommandJob) else None
        mode = apply or (base.apply if base is not None else guess_apply(command))
        if base is not None:
            return base.model_copy(update={"command": command, "apply": mode})
        return CommandJob(command=command, apply=mode)
    if isinstance(known, CommandJob) and apply is not None:
        return known.model_copy(update={"apply": apply})
    if known is None and preset is None:
        raise SettingsError("What shall be trained? Give a preset (--preset demo) or a command (-- python train.py).")
    return BuiltinJob() if known is None else known


def guess_apply(command: tuple[str, ...]) -> ApplyMode:
    """How settings can reach a command, by the marks in its words."""
    marks = {name for word in command for name in PLACEHOLDER.findall(word)}
    if "config" in marks:
        return "yaml"
    return "placeholders" if marks & FIELDS.keys() else "inject"


def parse_size(text: str) -> int:
    """Bytes from `6GiB`, `6.5 GB`, `800M` or a plain number; raises `SettingsError`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", text.strip().lower())
    size = int(float(found[1]) * UNITS[found[2] or ""]) if found else 0
    if size <= 0:
        raise SettingsError(f"--memory-limit {text!r} is no size; write one such as 6GiB or 800MB.")
    return size


def _resolved(asked: Asked, preset: Preset | None, record: RunRecord | None) -> Resolved:
    flags = parse_flags(asked.values)
    if record is None:
        return resolve(flags=flags, environment=os.environ, project=Path(PROJECT_FILE), preset=preset)
    changes = resolve(flags=flags, preset=preset)
    values = {name: getattr(changes.settings, name) for name in changes.origins}
    settings = record.resolved.settings.changed(**values)
    return replace(record.resolved, settings=settings, origins={**record.resolved.origins, **changes.origins})


def _apply_mode(text: str | None) -> ApplyMode | None:
    modes: tuple[ApplyMode, ...] = get_args(ApplyMode)
    for mode in modes:
        if mode == text:
            return mode
    if text is None:
        return None
    near = nearest(text, modes)
    raise SettingsError(
        f"--apply {text!r} is none of {', '.join(modes)}" + (f"; did you mean {near}?" if near else ".")
    )


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
