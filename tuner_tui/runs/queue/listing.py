"""The queue as people see it: the runs that wait, in their order, and why each waits."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

from tuner_tui.core.procfs import this_machine
from tuner_tui.runs.queue.queued_run import QueueError, start_file, waiting_run, waiting_sentence
from tuner_tui.runs.store.folder import RunFolder, list_runs
from tuner_tui.runs.store.record import readable_record
from tuner_tui.settings.model import OriginKind, Resolved, format_value


class QueueLine(Struct, frozen=True):
    """A run in the queue. One that `was-waiting` when the machine was restarted waits to be queued again."""

    run: str
    path: str
    state: Literal["waiting", "was-waiting", "damaged"]
    title: str = ""
    reason: str = ""
    gpus: int | None = None
    submitted_t: float | None = None


def list_queue(root: Path) -> tuple[QueueLine, ...]:
    """The runs in `root` that wait on this machine, in the order of the queue; damaged ones last."""
    lines = [line for folder in list_runs(root) if (line := _line(folder)) is not None]
    return tuple(sorted(lines, key=lambda line: (line.submitted_t or float("inf"), line.run)))


def _overrides(resolved: Resolved) -> list[str]:
    """Return `name=value` of each setting given on the command line: it tells the runs of a sweep apart."""
    return [
        f"{name}={format_value(name, value)}"
        for name, value in resolved.given.items()
        if resolved.origin(name).kind is OriginKind.FLAG
    ]


def _line(folder: RunFolder) -> QueueLine | None:
    path = str(folder.path)
    try:
        queued = waiting_run(folder)
        if queued is None:
            return None
        record = readable_record(folder)
        if record is not None and record.host != this_machine().host:
            return None
        state: Literal["waiting", "was-waiting"] = "waiting" if start_file(folder).exists() else "was-waiting"
        title = "" if record is None else " ".join([record.title, *_overrides(record.resolved)])
        return QueueLine(folder.id, path, state, title, waiting_sentence(folder), queued.gpus, queued.submitted_t)
    except QueueError as error:
        return QueueLine(folder.id, path, "damaged", reason=str(error))
    except OSError as error:
        return QueueLine(folder.id, path, "damaged", reason=f"{error.filename} cannot be read: {error.strerror}.")
