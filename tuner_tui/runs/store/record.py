"""`run.json`, and `tuning.json` alike: what was launched, with secrets hidden.

Written once; read by everything but the supervisor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any, TypeVar

from msgspec import Struct, convert, field, structs, to_builtins

from tuner_tui.core.files import read_regular, write_atomic
from tuner_tui.core.json_struct import (
    AbsolutePath,
    HostName,
    Identifier,
    PathText,
    Seconds,
    Time,
    Word,
    checked,
    to_json,
)
from tuner_tui.core.redaction import redact_argv, redact_env
from tuner_tui.core.text import first_line
from tuner_tui.runs.store.folder import RunFolder, StateFolder, list_runs
from tuner_tui.settings.errors import FieldError
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job, without_hydra
from tuner_tui.settings.model import FIELDS, AppliedRemedy, Origin, OriginKind, Resolved, Settings, check_value

RECORD_VERSION = 1


class RecordError(ValueError):
    """The record of a run cannot be read; the message is one sentence."""


class RunRecord(Struct, frozen=True):
    """One launch. `argv` is the resolved command and `env` what the launch added to the environment, both redacted.

    `parent` is the resumed run and `lineage` all runs before this one, oldest first. `versions` are package versions of
    the interpreter. `not_applied` names settings that could not be passed to the command. `tuning` is the id of the
    tuning that the run is a trial of. `shared_outputs` says which live runs wrote to the same folder at the launch.
    `nodes` is the number of nodes of a cluster that it was submitted to; None: it was started on `host`. After
    `stop_after_s` seconds it was to be stopped.
    """

    id: Identifier
    created_t: Time
    job: Job
    resolved: Resolved
    argv: tuple[Word, ...]
    cwd: AbsolutePath
    interpreter: AbsolutePath
    host: HostName
    program_version: str
    output_dir: AbsolutePath
    preset: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    not_applied: tuple[str, ...] = ()
    git_sha: str | None = None
    git_dirty: bool | None = None
    parent: Identifier | None = None
    lineage: tuple[Identifier, ...] = ()
    resumed_from: PathText | None = None
    memory_limit_bytes: int | None = None
    tuning: Identifier | None = None
    shared_outputs: tuple[str, ...] = ()
    nodes: int | None = None
    stop_after_s: Seconds | None = None

    @property
    def title(self) -> str:
        """A short title: preset, model of the built-in job, or command; with the tuning of a trial."""
        trial = f"trial of {self.tuning}: " if self.tuning else ""
        job = self.job
        if self.preset:
            return trial + self.preset
        if isinstance(job, BuiltinJob):
            return f"{trial}{job.task} with {job.model}"
        script = next((at for at, word in enumerate(self.argv) if word.endswith(".py")), 1)
        program = (PurePath(self.argv[0]).name, *self.argv[1:script]) if job.launcher == "plain" else (job.launcher,)
        return trial + " ".join((*program, *self.argv[script:]))


class _StoredSettings(Struct):
    """The part of the file that `resolved` is made from."""

    settings: dict[str, Any]
    origins: dict[str, tuple[str, str]] = {}
    remedies: list[Any] = []


Launched = TypeVar("Launched", bound=Struct)


def redact_job(job: Job) -> Job:
    job = structs.replace(job, env=redact_env(job.env))
    return structs.replace(job, command=redact_argv(job.command)) if isinstance(job, CommandJob) else job


def write_record(folder: StateFolder, record: Any) -> None:
    """Write the record of a run or tuning atomically. Raises `OSError`."""
    values = structs.asdict(record)
    resolved: Resolved = values.pop("resolved")
    origins = {name: [origin.kind.value, origin.detail] for name, origin in resolved.origins.items()}
    data = {"v": RECORD_VERSION} | to_builtins(values)
    data |= {"settings": to_builtins(resolved.settings), "origins": origins}
    if resolved.last_remedies:
        data["remedies"] = to_json(resolved.last_remedies)
    write_atomic(folder.record, json.dumps(data, indent=1) + "\n")


def _resolved(stored: _StoredSettings) -> Resolved:
    """Resolved settings from their stored form; unknown and invalid settings keep their defaults."""
    kinds = {kind.value: kind for kind in OriginKind}
    applied: dict[str, AppliedRemedy] = {}
    of_env: list[AppliedRemedy] = []
    for data in stored.remedies:
        with suppress(ValueError):  # what another version wrote
            remedy = checked(convert(data, AppliedRemedy))
            applied |= dict.fromkeys(remedy.before, remedy)
            of_env += [remedy] if remedy.env_before else []
    read_origins = {
        name: Origin(kinds[kind], detail, applied.get(name) if kind == OriginKind.REMEDY.value else None)
        for name, (kind, detail) in stored.origins.items()
        if kind in kinds
    }
    return Resolved(_settings(stored.settings), read_origins, tuple(of_env))


def read_record(folder: RunFolder) -> RunRecord:
    """Read the record. Raises `RecordError` if it is missing, damaged, or written by a newer version."""
    return read_launched(folder.record, RunRecord)


def read_launched(path: Path, record_type: type[Launched]) -> Launched:
    """The record in the file of a run or tuning. Raises `RecordError` as `read_record`."""
    try:
        data = json.loads(read_regular(path))
        if not isinstance(data, dict):
            raise ValueError("it contains no JSON object")
        if not (isinstance(data.get("v"), int) and data["v"] > RECORD_VERSION):
            resolved = _resolved(convert(data, _StoredSettings))
            return checked(convert({**data, "job": without_hydra(data.get("job")), "resolved": resolved}, record_type))
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: {first_line(str(error))}.") from error
    version = data.get("program_version")
    newer = f"tuner-tui ({version})" if isinstance(version, str) else "tuner-tui"
    raise RecordError(f"{path} was written by a newer {newer}.")


def readable_record(folder: RunFolder) -> RunRecord | None:
    """Read the record; None if that fails."""
    try:
        return read_record(folder)
    except RecordError:
        return None


MAX_RECORDED = 60
"""Newest runs that are looked at: reading the records of hundreds would delay every estimate."""


def recorded_runs(root: Path) -> Iterator[tuple[RunFolder, RunRecord]]:
    """The newest runs in `root`, newest first, with their records; without those whose record cannot be read."""
    records = ((folder, readable_record(folder)) for folder in list_runs(root)[:MAX_RECORDED])
    return ((folder, record) for folder, record in records if record is not None)


def _settings(values: Mapping[str, Any]) -> Settings:
    """The valid settings among `values`: another version may have had others, or other values of them."""
    kept: dict[str, Any] = {}
    for name in FIELDS.keys() & values.keys():
        with suppress(FieldError):
            kept[name] = check_value(name, values[name])
    return Settings(**kept)
