"""An entry of the queue: what `run` would launch, resolved once, and its progress."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tuner_tui.core.json_dataclass import from_json, to_json
from tuner_tui.core.redaction import HIDDEN, redact_env
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.record import redact_job, resolved_from_json, resolved_to_json
from tuner_tui.runs.supervise.run_processes import RUN_VARIABLE
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job

ENTRY_VERSION = 1
STATES = frozenset({"waiting", "starting", "running"})


class EntryError(ValueError):
    """The entry cannot be used; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class EntryProgress:
    """What changes while an entry is in the queue; the rest is written once.

    `state` is one of `STATES`. `order`: entries are looked at from the lowest to the highest. `held` says why it does
    not start although its turn may come. `run` is the folder of its run, once there is one; `keys` are the places it
    was given, `promised_bytes` what it may take of each. `requeued` says why it is in the queue for the second time.
    """

    order: float
    state: str = "waiting"
    held: str | None = None
    run: str | None = None
    keys: tuple[str, ...] = ()
    promised_bytes: int | None = None
    requeued: str | None = None


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One queued run. `token` marks the run that is started for it, so that it is never started twice.

    `gpus` cards are bound to it; 0: it runs on the processor, with `cores` of it, or all. `allowed` are the UUIDs of
    the cards that `CUDA_VISIBLE_DEVICES` left to it. `after` is a run folder or an entry that has to end first.
    `request` has its secrets hidden, unless `complete`.
    """

    id: str
    token: str
    queued_t: float
    request: LaunchRequest
    progress: EntryProgress
    gpus: int = 1
    cores: int | None = None
    allowed: tuple[str, ...] | None = None
    after: str | None = None
    complete: bool = False

    @property
    def title(self) -> str:
        """The preset, the model of the built-in job, or the command, without secrets."""
        job = redact_job(self.request.job)
        if self.request.preset:
            return self.request.preset
        return f"{job.task} with {job.model}" if isinstance(job, BuiltinJob) else " ".join(job.command)

    @property
    def run_folder(self) -> RunFolder | None:
        """The folder of its run, if it was started."""
        return None if self.progress.run is None else RunFolder(Path(self.progress.run))

    def changed(self, **changes: Any) -> QueueEntry:
        """The entry with changed progress."""
        return replace(self, progress=replace(self.progress, **changes))


def entry_to_json(entry: QueueEntry) -> dict[str, Any]:
    """The entry as its file holds it: without secrets."""
    own = {name: getattr(entry, name) for name in ("id", "token", "queued_t", "gpus", "cores", "allowed", "after")}
    return {
        "v": ENTRY_VERSION,
        **to_json(own),
        "progress": to_json(entry.progress),
        "request": request_to_json(hide_secrets(entry.request)),
    }


def entry_from_json(data: Any) -> QueueEntry:
    """The entry of a file. Raises `EntryError`."""
    if not isinstance(data, dict) or data.get("v") != ENTRY_VERSION:
        raise EntryError("it is not an entry of this version")
    try:
        allowed = data.get("allowed")
        progress = from_json(EntryProgress, data["progress"])
        if progress.state not in STATES:
            raise EntryError(f"{progress.state!r} is not a valid state")
        return QueueEntry(
            id=_text(data["id"]),
            token=_text(data["token"]),
            queued_t=float(data["queued_t"]),
            request=request_from_json(data["request"]),
            progress=progress,
            gpus=int(data["gpus"]),
            cores=None if data.get("cores") is None else int(data["cores"]),
            allowed=None if allowed is None else tuple(map(_text, allowed)),
            after=None if data.get("after") is None else _text(data["after"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise EntryError(str(error).partition("\n")[0] or repr(error)) from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def request_to_json(request: LaunchRequest) -> dict[str, Any]:
    """The request as JSON, with whatever secrets it holds."""
    return {
        "job": request.job.model_dump(mode="json"),
        **resolved_to_json(request.resolved),
        "interpreter": None if request.interpreter is None else str(request.interpreter),
        "cwd": str(request.cwd),
        "preset": request.preset,
        "memory_limit_bytes": request.memory_limit_bytes,
        "parent": None if request.parent is None else str(request.parent.path),
        "from_scratch": request.from_scratch,
        "environ": dict(request.environ),
        "root": str(request.runs_root),
        "notes": list(request.notes),
    }


def request_from_json(data: Mapping[str, Any]) -> LaunchRequest:
    """The request of `request_to_json`. Raises `KeyError`, `TypeError` and `ValueError`."""
    try:
        job: Job = TypeAdapter(Job).validate_python(data["job"])
    except ValidationError as error:
        raise ValueError(f"job: {error.errors()[0]['msg']}") from error
    return LaunchRequest(
        job=job,
        resolved=resolved_from_json(data["settings"], data["origins"]),
        interpreter=None if data["interpreter"] is None else Path(data["interpreter"]),
        cwd=Path(data["cwd"]),
        preset=data["preset"],
        memory_limit_bytes=data["memory_limit_bytes"],
        parent=None if data["parent"] is None else RunFolder(Path(data["parent"])),
        from_scratch=bool(data["from_scratch"]),
        environ={_text(name): _text(value) for name, value in data["environ"].items()},
        root=Path(data["root"]),
        notes=tuple(data["notes"]),
    )


def hide_secrets(request: LaunchRequest) -> LaunchRequest:
    """The request with the secrets of its command and environment hidden, as in `run.json`."""
    environ = {name: value for name, value in request.environ.items() if name != RUN_VARIABLE}
    return replace(request, job=redact_job(request.job), environ=redact_env(environ))


def fill_secrets(request: LaunchRequest, environ: Mapping[str, str] = os.environ) -> LaunchRequest:
    """The request with hidden variables taken from `environ`. Raises `EntryError` for secrets that are not there."""
    filled = {name: environ.get(name, value) if HIDDEN in value else value for name, value in request.environ.items()}
    missing = sorted(name for name, value in filled.items() if HIDDEN in value)
    job = request.job
    if isinstance(job, CommandJob) and HIDDEN in " ".join((*job.command, *job.env.values())):
        raise EntryError("Its command contained a secret, which was kept in memory only and is lost: queue it again.")
    if missing:
        raise EntryError(
            f"{', '.join(missing)} was kept in memory only and is lost: release the entry from a shell where it is set."
            if len(missing) == 1
            else (
                f"{', '.join(missing)} were kept in memory only and are lost: release the entry from a shell "
                "where they are set."
            )
        )
    return replace(request, environ=filled)
