"""Unsaved changes of settings and job, kept until the same job is opened in the same folder again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import MsgspecError, to_builtins
from msgspec.json import decode, encode

from tuner_tui.core.files import read_regular
from tuner_tui.runs.store.record import redact_job
from tuner_tui.settings.errors import FieldError
from tuner_tui.settings.job import Job
from tuner_tui.settings.model import FIELDS, Origin, OriginKind, Resolved, Value, format_value, parse_value
from tuner_tui.ui.records import DEMO, TrainingConfig

LAST_TIME = Origin(OriginKind.EDITED, "last time")


class UnsavedValue(NamedTuple):
    """A value as typed, the one that it `replaced`, None where none was given, and what it comes from."""

    text: str
    replaced: str | None = None
    origin: Origin = LAST_TIME


Draft = Mapping[str, UnsavedValue]
"""The unsaved values by the names of their settings. `JOB` has the job in JSON."""
JOB = "job"
MAX_DRAFT_BYTES = 1 << 16
OF_THIS_START = frozenset({OriginKind.FLAG, OriginKind.ENVIRONMENT})


def draft_of(current: Resolved, saved: Resolved) -> Draft:
    """Return what the user has changed since the settings were loaded or saved."""
    before, draft = saved.given, {}
    for name, value in current.given.items():
        if name not in before or before[name] != value:
            replaced = format_value(name, before[name]) if name in before else None
            origin = current.origin(name)  # a remedy has looked at more than rules do, and its promise is judged
            origin = LAST_TIME if origin.kind is OriginKind.EDITED else origin
            draft[name] = UnsavedValue(format_value(name, value), replaced, origin)
    return draft


def with_job(draft: Draft, job: Job) -> Draft:
    """Return the draft with the edited `job`; without one whose command holds a secret, which is not stored."""
    return draft if redact_job(job) != job else {**draft, JOB: UnsavedValue(encode(job).decode())}


def job_of(draft: Draft) -> Job | None:
    """Return the edited job of a draft; None without one that can be read."""
    with suppress(KeyError, MsgspecError, FieldError):
        job: Job = decode(draft[JOB].text, type=Job)
        return job
    return None


def restorable(draft: Draft, loaded: Resolved) -> tuple[dict[str, Value], tuple[str, ...]]:
    """Return the values of `draft` to restore, and the settings that are left as loaded.

    Left are those that were changed elsewhere meanwhile, in the file or by a flag of this start.
    """
    values: dict[str, Value] = {}
    left: list[str] = []
    for name, (text, replaced, _) in draft.items():
        now = format_value(name, loaded.given[name]) if name in loaded.given else None
        if name == JOB or text == now:
            continue
        if name not in FIELDS or now != replaced or loaded.origin(name).kind in OF_THIS_START:
            left.append(name)
            continue
        try:
            values[name] = parse_value(name, text)
        except FieldError:
            left.append(name)
    return values, tuple(left)


def draft_path(folder: Path, config: TrainingConfig) -> Path:
    """Return the file in `folder` of the drafts of a job and preset that are opened in the present folder."""
    # An edited job no longer has the name of the demo, which is opened where none was named.
    preset = None if config.preset == DEMO and not config.named else config.preset
    identity = json.dumps([str(Path.cwd()), preset, to_builtins(redact_job(config.job))], sort_keys=True)
    return folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:24]}.json"


def read_draft(path: Path) -> Draft:
    """Return the draft in a file; empty where there is none that can be read."""
    with suppress(OSError, MsgspecError, ValueError, RecursionError):
        return decode(read_regular(path, MAX_DRAFT_BYTES), type=dict[str, UnsavedValue])
    return {}
