"""A run that waits for its turn: `queue.json` in its folder, and what its start needs, which no disk gets.

A run is waiting while it has a `queue.json`, its command was never started, and nobody holds the lock of its folder.
Whoever starts or ends it takes that lock first. The command with its secrets lies in memory (/dev/shm), in files named
by the run that only this user can read; they are gone after a reboot.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
import zlib
from pathlib import Path

from msgspec import Struct

from tuner_tui.core.file_locks import held_lock, is_locked
from tuner_tui.core.files import make_private, read_json, read_regular, write_atomic
from tuner_tui.core.json_struct import IDENTIFIER, Count, GpuUuid, Identifier, Time, from_json, to_json
from tuner_tui.core.line_files import append_line
from tuner_tui.core.procfs import ProcessId, this_machine
from tuner_tui.runs.store.folder import RunFolder, SupervisorState, read_supervisor_state, write_supervisor_state
from tuner_tui.runs.supervise.run_processes import finish_start, open_detached

QUEUE_VERSION = 1
WAITER_MODULE = "tuner_tui.runs.queue.waiter"
SHM = Path("/dev/shm")  # noqa: S108  in a folder of our own, whose owner is checked
WAS_WAITING = "It was waiting when the machine was restarted; `tuner-tui queue --restart` queues it again."
NOT_LOOKED_AT = "It was queued a moment ago."


class QueueError(ValueError):
    """The queue cannot do what was asked, or a file of it is damaged; the message is one sentence."""


class QueuedRun(Struct, frozen=True):
    """What a run waits for: `gpus` of the GPUs `allowed` (UUIDs; 0: the processor), and the end of the run `after`.

    With `after_success` that run has to complete. `submitted_t` is its place in the queue. `gpu_uuids` are
    those that it was given when its turn came; None before.
    """

    submitted_t: Time
    gpus: Count
    allowed: tuple[GpuUuid, ...]
    after: Identifier | None = None
    after_success: bool = False
    gpu_uuids: tuple[GpuUuid, ...] | None = None


def read_queued(folder: RunFolder) -> QueuedRun | None:
    """Read `queue.json`; None if the run was never queued. Raises `QueueError` where it is damaged."""
    try:
        data = json.loads(read_regular(folder.queue))
        queued = from_json(QueuedRun, data, strict=True)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise QueueError(f"{folder.queue} is damaged: {error}.") from error
    if data.get("v") != QUEUE_VERSION:
        raise QueueError(f"{folder.queue} is damaged: it is not of this version.")
    return queued


def write_queued(folder: RunFolder, queued: QueuedRun) -> None:
    """Replace `queue.json`. Raises `OSError`."""
    write_atomic(folder.queue, json.dumps({"v": QUEUE_VERSION} | to_json(queued), indent=1) + "\n")


def was_started(folder: RunFolder) -> bool:
    """Whether the command of the run may have been started, or the run has ended without it."""
    # The supervisor writes its state before it opens the output and starts the command. One that was killed in between
    # has started nothing.
    if not os.path.lexists(folder.state):
        return False
    state = read_supervisor_state(folder.state)
    return state is None or state.outcome is not None or state.training is not None or folder.output_log.exists()


def waiting_run(folder: RunFolder) -> QueuedRun | None:
    """What the run waits for; None if it is not waiting. Raises `QueueError`, and `OSError` for an unreadable lock."""
    if not os.path.lexists(folder.queue) or was_started(folder) or is_locked(folder.lock):
        return None
    return read_queued(folder)


def end_waiting(folder: RunFolder, outcome: str, sentence: str) -> bool:
    """End a run that is still waiting; return whether it was.

    Raises `LockedError` where it is being started, and `OSError`.
    """
    # Imported now: the waiter ends a run rarely, and is to stay small.
    from tuner_tui.runs.events.types import Finished
    from tuner_tui.runs.store.codec import encode_event

    with held_lock(folder.lock, needed=False):
        if not os.path.lexists(folder.queue) or was_started(folder):
            return False
        now = time.time()
        append_line(folder.events, encode_event(Finished(t=now, outcome=outcome, sentence=sentence)))
        ended = SupervisorState(this_machine(), ProcessId(0, 0), now, ended_t=now, outcome=outcome, sentence=sentence)
        write_supervisor_state(folder.state, ended)
    forget_start(folder)
    return True


# What a start needs, in memory


def memory_folder(root: Path) -> Path:
    """The folder in memory for the runs in `root`. Raises `OSError` where others could change what is in it."""
    memory = SHM if os.access(SHM, os.W_OK) else Path(os.environ.get("XDG_RUNTIME_DIR", SHM))
    base = memory / f"tuner-tui-{os.getuid()}"
    if os.path.lexists(base):
        status = base.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise PermissionError(errno.EPERM, "It belongs to another user, or others can read it", str(base))
    # Several state folders have runs of the same names.
    return base / f"{zlib.crc32(os.fsencode(os.path.realpath(root))):08x}"


def start_file(folder: RunFolder, suffix: str = "start") -> Path:
    """The file with the launch specification of a waiting run, or, by `suffix`, the input of its OOM retries.

    Raises `QueueError`, and `OSError` as `memory_folder`.
    """
    if not IDENTIFIER.accepts(folder.id):
        raise QueueError(f"{folder.id!r} is not the name of a run.")
    return memory_folder(folder.path.parent) / f"{folder.id}.{suffix}"


def keep_start(folder: RunFolder, specification: str, fallback: str | None) -> None:
    """Keep what the start needs. Raises `OSError` and `QueueError`."""
    make_private(start_file(folder).parent)
    if fallback is not None:
        write_atomic(start_file(folder, "fallback"), fallback)
    write_atomic(start_file(folder), specification)


def forget_start(folder: RunFolder) -> None:
    """Remove what the start needed: the run has started or ended."""
    for suffix in ("start", "fallback"):
        start_file(folder, suffix).unlink(missing_ok=True)


# The waiter


def waiter_lock(root: Path) -> Path:
    """Locked by the waiter of the runs in `root` while it lives. In memory, where locks always work."""
    return memory_folder(root) / "waiter.lock"


def revive_waiter(root: Path) -> None:
    """Start the waiter if runs wait and none is alive. Raises `OSError`."""
    if any(memory_folder(root).glob("*.start")) and not is_locked(waiter_lock(root)):
        finish_start(open_detached(WAITER_MODULE, [str(root)], root / "waiter.log"))


def waiting_sentence(folder: RunFolder) -> str:
    """Why a waiting run waits, as the waiter saw it last."""
    if not start_file(folder).exists():
        return WAS_WAITING
    reason = read_json(memory_folder(folder.path.parent) / "reasons.json").get(folder.id)
    return reason if isinstance(reason, str) else NOT_LOOKED_AT
