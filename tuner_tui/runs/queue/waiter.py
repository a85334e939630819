"""The process that starts the waiting runs in the folder ROOT: `python -m tuner_tui.runs.queue.waiter ROOT`.

There is at most one, by a lock. It lives while runs wait. All that it knows is in the folders of the runs, so that it
may be killed at any moment: whoever looks at the queue, and every supervisor that ends, starts it again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from tuner_tui.core.file_locks import LockedError, held_lock, is_locked
from tuner_tui.core.files import opened_regular, read_regular, write_atomic
from tuner_tui.core.ownership import require_unshared
from tuner_tui.hardware.environment import VISIBLE_DEVICES
from tuner_tui.hardware.sampler import Sampler, open_sampler
from tuner_tui.runs.queue import queued_run
from tuner_tui.runs.queue.gpu_occupancy import READY_TIMEOUT_S, ActiveRun, occupancies_of, processor_user, read_active
from tuner_tui.runs.queue.turns import Applicant, take_turns
from tuner_tui.runs.store.folder import RunFolder, list_runs, read_supervisor_state
from tuner_tui.runs.supervise.run_processes import (
    FALLBACK_MODULE,
    SUPERVISOR_MODULE,
    ProcessSnapshot,
    finish_start,
    open_detached,
)

PERIOD_S = 2.0
RETRY_S = 30.0
"""Seconds until a start that failed, such as on a full disk, is tried again."""

Start = Callable[[RunFolder, tuple[str, ...], int], None]


class Waiter:
    """Starts the runs in `root` whose turn it is. Nothing is lost if the object is."""

    def __init__(self, root: Path, sampler: Sampler, start: Start, clock: Callable[[], float]) -> None:
        self._root = root
        self._sampler = sampler
        self._start = start
        self._clock = clock
        self._over: set[str] = set()
        self._retries: dict[str, tuple[str, float]] = {}
        self._written: dict[str, str] | None = None
        self._logged: set[str] = set()

    def step(self) -> None:
        """Look at all runs once and start those whose turn it is. Raises `OSError`."""
        snapshot = ProcessSnapshot()
        waiting, live = self._read(snapshot)
        occupancies = occupancies_of(self._sampler.gpus(), self._sampler.sample(), live, snapshot)
        applicants = [
            Applicant(folder.id, queued.gpus, queued.allowed, self._hindrance(folder, queued))
            for folder, queued in waiting
        ]
        turns = take_turns(applicants, occupancies, processor_user(live, occupancies))
        for turn, (folder, _) in zip(turns, waiting, strict=True):
            if turn.gpu_uuids is not None:
                self._give_turn(folder, turn.gpu_uuids)
        reasons = {turn.run: turn.reason for turn in turns if turn.gpu_uuids is None}
        if reasons != self._written:
            write_atomic(queued_run.memory_folder(self._root) / "reasons.json", json.dumps(reasons))
            self._written = reasons

    def _read(self, snapshot: ProcessSnapshot) -> tuple[list[tuple[RunFolder, queued_run.QueuedRun]], list[ActiveRun]]:
        """The waiting runs in their order, and the live ones. A run that cannot be read is left out."""
        for path in queued_run.memory_folder(self._root).glob("*.start"):
            folder = RunFolder(self._root / path.stem)
            with suppress(OSError, queued_run.QueueError):
                if not folder.path.is_dir() or queued_run.was_started(folder):
                    queued_run.forget_start(folder)
        waiting, live = [], []
        for folder in list_runs(self._root):
            if folder.id in self._over:
                continue
            try:
                queued = queued_run.waiting_run(folder)
                if queued is not None:
                    waiting += [(folder, queued)] if queued_run.start_file(folder).exists() else []
                elif (run := read_active(folder, snapshot)) is not None:
                    live.append(run)
                elif (state := read_supervisor_state(folder.state)) is not None and state.outcome is not None:
                    self._over.add(folder.id)
            except (OSError, queued_run.QueueError) as error:
                self.log(f"{folder.id}: {error}")
        return sorted(waiting, key=lambda pair: (pair[1].submitted_t, pair[0].id)), live

    def log(self, message: str) -> None:
        """Write a message, once, to standard error, which is the waiter's log."""
        if message not in self._logged:
            self._logged.add(message)
            sys.stderr.write(message + "\n")
            sys.stderr.flush()

    def _hindrance(self, folder: RunFolder, queued: queued_run.QueuedRun) -> str | None:
        """Why the run is not ready; None if it is. One that can never be ready is ended."""
        sentence, until_s = self._retries.get(folder.id, ("", 0.0))
        if sentence and self._clock() < until_s:
            return sentence
        try:
            if is_locked(self._root.parent / "tunings" / "lock"):
                return "It starts after the tuning that measures on this machine has ended."
            outcome = "completed" if queued.after is None else self._outcome_of(RunFolder(self._root / queued.after))
        except OSError as error:
            return f"The condition it waits for cannot be read: {error.strerror} ({error.filename})."
        if outcome is None:
            return f"It starts after run {queued.after} has ended."
        if not queued.after_success or outcome == "completed":
            return None
        sentence = f"Not started: run {queued.after}, which had to complete first, ended as {outcome}."
        with suppress(LockedError, OSError):  # it is looked at again
            queued_run.end_waiting(folder, "not-started", sentence)
        return sentence

    def _outcome_of(self, folder: RunFolder, before: frozenset[str] = frozenset()) -> str | None:
        """How the run, or the one that continued it after out of memory, ended; None if it has not ended yet.

        `before` are the runs that it continues.
        """
        if not folder.path.is_dir():
            return "deleted"
        if folder.id in before:
            return "lost"
        if is_locked(folder.lock) or is_locked(folder.fallback_lock):
            return None
        state = read_supervisor_state(folder.state)
        if state is not None and state.outcome not in (None, "out-of-memory"):
            return state.outcome
        if os.path.lexists(folder.queue) and not queued_run.was_started(folder):
            return None
        # Imported only here, for a run that lost its supervisor or may have been continued: the waiter stays small.
        from tuner_tui.runs.events.types import FellBack
        from tuner_tui.runs.read.event_sampling import read_events
        from tuner_tui.runs.read.status import read_status

        following = [event.into for event in read_events(folder) if isinstance(event, FellBack)]
        if following:
            return self._outcome_of(RunFolder(folder.path.with_name(following[-1])), before | {folder.id})
        status = read_status(folder)
        return None if status.live or status.kind == "foreign" else status.outcome or "lost"

    def _give_turn(self, folder: RunFolder, gpu_uuids: tuple[str, ...]) -> None:
        """Start a run on the GPUs `gpu_uuids`, if nobody has taken or ended it meanwhile."""
        # Seen only if it waits again: then its supervisor has failed.
        sentence = f"The run did not start and will be tried again; see {folder.supervisor_log}."
        try:
            # The lock goes to the supervisor as an open file: the folder is locked from before the GPUs are given
            # until the run has ended. Who is killed in between leaves it unlocked and not started, so it waits again.
            require_unshared(folder.path)
            with held_lock(folder.lock) as lock:
                queued = None if queued_run.was_started(folder) else queued_run.read_queued(folder)
                if queued is not None:
                    queued_run.write_queued(folder, replace(queued, gpu_uuids=gpu_uuids))
                    self._start(folder, gpu_uuids, lock)
        except (OSError, ValueError, LockedError) as error:
            self.log(f"{folder.id}: {error}")
            sentence = f"The run did not start and will be tried again: {error}."
        self._retries[folder.id] = sentence, self._clock() + RETRY_S


def start_run(folder: RunFolder, gpu_uuids: tuple[str, ...], lock: int) -> None:
    """Start the supervisor of a waiting run on `gpu_uuids`, and its OOM retries. Raises `OSError` and `ValueError`."""
    visible_devices = ",".join(gpu_uuids)
    fallback = queued_run.start_file(folder, "fallback")
    if fallback.exists():  # before the run, so that it cannot end unnoticed
        data = bound_fallback(read_regular(fallback), visible_devices)
        finish_start(open_detached(FALLBACK_MODULE, [str(folder.path)], folder.supervisor_log, subprocess.PIPE), data)
    with opened_regular(queued_run.start_file(folder)) as specification:
        options = ["--lock", str(lock), "--gpus", visible_devices]
        process = open_detached(
            SUPERVISOR_MODULE, [str(folder.path), *options], folder.supervisor_log, specification, pass_fds=[lock]
        )
        finish_start(process)
        if process.returncode:
            raise OSError(f"its supervisor failed, see {folder.supervisor_log}")


def bound_fallback(data: bytes, visible_devices: str) -> bytes:
    """The input of the OOM retries, whose runs get the same GPUs. Raises `ValueError`."""
    try:
        values = json.loads(data)
        values["environ"][VISIBLE_DEVICES] = visible_devices
        if VISIBLE_DEVICES in (values["job"].get("env") or {}):
            values["job"]["env"][VISIBLE_DEVICES] = visible_devices
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"the input of its OOM retries is damaged: {error!r}") from error
    return json.dumps(values).encode("ascii")


def main(argv: list[str]) -> None:
    """Start the waiting runs in the folder `argv[0]`, in the background, until none is left."""
    root = Path(argv[0])
    if os.fork():
        os._exit(0)  # init adopts the waiter
    signal.signal(signal.SIGHUP, lambda number, frame: None)  # child processes would inherit that it is ignored
    sampler = open_sampler(root)
    sampler.wait_ready(READY_TIMEOUT_S)
    waiter = Waiter(root, sampler, start_run, time.monotonic)
    # Who queues a run writes its file before it looks for the lock, and the files are looked for here after the lock
    # was given up: so either this process sees the run, or the other one starts a new waiter.
    while any(queued_run.memory_folder(root).glob("*.start")):
        try:
            with held_lock(queued_run.waiter_lock(root)):
                while any(queued_run.memory_folder(root).glob("*.start")):
                    try:
                        waiter.step()
                    except OSError as error:
                        waiter.log(str(error))
                    time.sleep(PERIOD_S)
        except LockedError:
            return


if __name__ == "__main__":
    main(sys.argv[1:])
