"""`state.json`: processes and outcome as the supervisor knows them. Replaced atomically."""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from pathlib import Path

from tuner_tui.core.files import overwrite, read_regular, write_atomic
from tuner_tui.core.json_dataclass import from_json, to_json
from tuner_tui.core.procfs import Machine, ProcessId

STATE_VERSION = 1
PADDED_BYTES = 8192
"""The file is padded to this size, so that on a full disk the outcome can still be written over the old content."""


@dataclass(frozen=True, slots=True)
class SupervisorState:
    """Processes of a run and how it ended. `outcome` is None while it runs; `problems` are sentences.

    `order_ns` is the time of the newest order that the supervisor has taken: that of the file `control`.
    """

    machine: Machine
    supervisor: ProcessId
    started_t: float
    training: ProcessId | None = None
    ended_t: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    outcome: str | None = None
    sentence: str = ""
    problems: tuple[str, ...] = ()
    order_ns: int | None = None


def read_supervisor_state(path: Path) -> SupervisorState | None:
    """Read the file; None if it is missing or invalid."""
    try:
        data = json.loads(read_regular(path))
        return from_json(SupervisorState, data) if data.get("v") == STATE_VERSION else None
    except (OSError, ValueError, AttributeError, RecursionError):
        return None


def write_supervisor_state(path: Path, supervision: SupervisorState) -> None:
    """Replace the file atomically; on a full disk, overwrite its content in place. Raises `OSError`."""
    text = json.dumps({"v": STATE_VERSION} | to_json(supervision), indent=1).encode("ascii")
    content = text.ljust(PADDED_BYTES - 1) + b"\n"
    try:
        write_atomic(path, content)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        overwrite(path, content)
