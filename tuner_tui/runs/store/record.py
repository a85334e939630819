"""`run.json`: what was launched, with secrets hidden. Written once; read by everything but the supervisor."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from msgspec import Struct, convert, field, structs, to_builtins
from msgspec.structs import asdict

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
from tuner_tui.runs.store.folder import RunFolder, list_runs
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
        return trial + " ".join((PurePath(self.argv[0]).name, *self.argv[1:]))


class _StoredSettings(Struct):
    """The part of the file that `resolved` is made from."""

    settings: dict[str, Any]
    origins: dict[str, tuple[str, str]] = {}
    remedies: list[Any] = []


def redact_job(job: Job) -> Job:
    job = structs.replace(job, env=redact_env(job.env))
    return structs.replace(job, command=redact_argv(job.command)) if isinstance(job, CommandJob) else job


def write_record(folder: RunFolder, record: RunRecord) -> None:
    """Write the record atomically. Raises `OSError`."""
    data = {name: value for name, value in asdict(record).items() if name not in ("job", "resolved")}
    data = {"v": RECORD_VERSION} | data | {"job": to_builtins(record.job)} | resolved_to_json(record.resolved)
    write_atomic(folder.record, json.dumps(data, indent=1) + "\n")


def resolved_to_json(resolved: Resolved) -> dict[str, Any]:
    """The keys `settings`, `origins` and, if there are any, `remedies` of resolved settings."""
    origins = {name: [origin.kind.value, origin.detail] for name, origin in resolved.origins.items()}
    data = {"settings": to_builtins(resolved.settings), "origins": origins}
    return data | ({"remedies": to_json(resolved.last_remedies)} if resolved.last_remedies else {})


def resolved_from_json(
    settings: Mapping[str, Any], origins: Mapping[str, tuple[str, str]], remedies: Sequence[Any] = ()
) -> Resolved:
    """Resolved settings from their stored form; unknown and invalid settings keep their defaults."""
    kinds = {kind.value: kind for kind in OriginKind}
    applied: dict[str, AppliedRemedy] = {}
    of_env: list[AppliedRemedy] = []
    for data in remedies:
        with suppress(ValueError):  # what another version wrote
            remedy = checked(convert(data, AppliedRemedy))
            applied |= dict.fromkeys(remedy.before, remedy)
            of_env += [remedy] if remedy.env_before else []
    read_origins = {
        name: Origin(kinds[kind], detail, applied.get(name) if kind == OriginKind.REMEDY.value else None)
        for name, (kind, detail) in origins.items()
        if kind in kinds
    }
    return Resolved(_settings(settings), read_origins, tuple(of_env))


def read_record(folder: RunFolder) -> RunRecord:
    """Read the record. Raises `RecordError` if it is missing, damaged, or written by a newer version."""
    data = parse_record(folder.record)
    if isinstance(data.get("v"), int) and data["v"] > RECORD_VERSION:
        version = data.get("program_version")
        newer = f"tuner-tui ({version})" if isinstance(version, str) else "tuner-tui"
        raise RecordError(f"{folder.record} was written by a newer {newer}.")
    try:
        stored = convert(data, _StoredSettings)
        resolved = resolved_from_json(stored.settings, stored.origins, stored.remedies)
        return checked(convert({**data, "job": without_hydra(data.get("job")), "resolved": resolved}, RunRecord))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{folder.record} is damaged: {first_line(str(error))}.") from error


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


def parse_record(path: Path) -> dict[str, Any]:
    """The JSON object in the file. Raises `RecordError` if there is none."""
    try:
        data = json.loads(read_regular(path))
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: {first_line(str(error))}.") from error
    if not isinstance(data, dict):
        raise RecordError(f"{path} is damaged: it contains no JSON object.")
    return data


def _settings(values: Mapping[str, Any]) -> Settings:
    """The valid settings among `values`: another version may have had others, or other values of them."""
    kept: dict[str, Any] = {}
    for name in FIELDS.keys() & values.keys():
        with suppress(FieldError):
            kept[name] = check_value(name, values[name])
    return Settings(**kept)
