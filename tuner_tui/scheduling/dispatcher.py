"""The detached process that starts queued runs: `python -m tuner_tui.scheduling.dispatcher DIR`.

There is at most one, by a lock. It lives while the queue has entries and ends with the last one; whoever looks at the
queue starts it again where it was killed. All that it knows is in the queue's folder and in those of the runs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Protocol

from tuner_tui.core.files import LockedError, acquire_lock, write_atomic
from tuner_tui.hardware.host.system_info import Cgroups, read_cpu
from tuner_tui.hardware.sampler import open_sampler
from tuner_tui.runs.read.status import is_fallback_pending, read_status
from tuner_tui.runs.store.folder import RunFolder, runs_dir
from tuner_tui.runs.supervise.run_processes import ProcessSnapshot
from tuner_tui.scheduling.admission import Applicant, Demand, Place, decide, fitted
from tuner_tui.scheduling.claims import SharedClaims
from tuner_tui.scheduling.demand import demand_of
from tuner_tui.scheduling.entry import EntryError, QueueEntry
from tuner_tui.scheduling.occupancy import StartedRuns, process_tree, read_places
from tuner_tui.scheduling.queue_store import Queue, QueueError, open_queue
from tuner_tui.scheduling.requeue import second_chance
from tuner_tui.scheduling.starting import Attempt, Launch, launch_request, settle_start, start_entry
from tuner_tui.tuning.store import AlreadyTuningError, ensure_no_other_tuning

PERIOD_S = 2.0
RETRY_S = 30.0
"""Seconds until an entry is retried after a temporary failure to start, such as a full disk."""
READY_TIMEOUT_S = 15.0
"""Seconds to wait for the first answer of the GPUs; a sleeping one needs a second or two."""


class MachineReader(Protocol):
    """What the dispatcher asks of the machine."""

    def read(self, entries: Sequence[QueueEntry]) -> tuple[Place, ...]:
        """Return all places now; `entries` are those that run."""

    @property
    def ended_runs(self) -> int:
        """How many runs have ended so far: predictions change with each."""


class DispatchedMachine:
    """This machine and the runs in `root`."""

    def __init__(self, root: Path) -> None:
        place = next(folder for folder in (root, *root.parents) if folder.exists())
        self._sampler = open_sampler(place)
        self._sampler.wait_ready(READY_TIMEOUT_S)
        self._runs = StartedRuns(root)
        self._claims = SharedClaims()
        self._cores = read_cpu(Cgroups.of_this_process()).usable_cores
        self._sampler.sample()  # the load is that since the call before

    def read(self, entries: Sequence[QueueEntry]) -> tuple[Place, ...]:
        """All places now."""
        runs = self._runs.read(entries, self._sampler.cards())
        self._claims.publish(runs)
        others = self._claims.of_others(partial(process_tree, ProcessSnapshot()))
        return read_places(self._sampler, (*runs, *others), self._cores)

    @property
    def ended_runs(self) -> int:
        """How many runs have ended so far."""
        return self._runs.ended


@dataclass(frozen=True, slots=True)
class _Delay:
    """The reason for which an entry is not retried before `until_s` (monotonic)."""

    sentence: str
    until_s: float


class Dispatcher:
    """Starts the entries that may start. `step` is called in a loop; nothing is lost if the object is."""

    def __init__(
        self,
        queue: Queue,
        machine: MachineReader,
        launch: Launch = launch_request,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._machine = machine
        self._launch = launch
        self._clock = clock
        self._demands: dict[tuple[str, int | None], Demand] = {}
        self._ended_runs = -1
        self._delays: dict[str, _Delay] = {}
        self._written: dict[str, str] | None = None

    def step(self) -> bool:
        """Read the queue once and start at most one run. Return whether one was started: call it again at once then."""
        for entry in self._queue.read().entries:
            if entry.progress.state == "starting":  # of a dispatcher that was killed
                settle_start(self._queue, entry)
            elif entry.progress.state == "running":
                self._follow(entry)
        entries = self._queue.read().entries  # again: some have just changed
        running = [entry for entry in entries if entry.progress.state != "waiting"]
        waiting = [entry for entry in entries if entry.progress.state == "waiting"]
        if not any(entry.progress.held is None for entry in waiting):
            self._write_reasons({entry.id: entry.progress.held or "" for entry in waiting})
            return False
        places = self._machine.read(running)
        tuning = self._live_tuning()
        applicants = {entry.id: self._applicant(entry, places, tuning) for entry in waiting}
        decisions = {decision.entry: decision for decision in decide(places, list(applicants.values()))}
        reasons = {
            entry.id: decisions[entry.id].reason + (f" {entry.progress.requeued}" if entry.progress.requeued else "")
            for entry in waiting
        }
        # One start at a time: the next decision is made with the places as they are after it, not as expected.
        chosen = next((entry for entry in waiting if decisions[entry.id].starts), None)
        self._write_reasons(reasons)
        if chosen is None:
            return False
        promised = applicants[chosen.id].demand.peak_bytes
        attempt = start_entry(self._queue, chosen, decisions[chosen.id].keys, promised, self._launch)
        self._note(chosen, attempt)
        return attempt.run is not None

    def ends(self) -> bool:
        """Whether nothing is left to do: no entry runs, and all that wait are held."""
        return not any(
            entry.progress.state != "waiting" or entry.progress.held is None for entry in self._queue.read().entries
        )

    def _applicant(self, entry: QueueEntry, places: Sequence[Place], tuning: str | None) -> Applicant:
        allowed = None if entry.allowed is None else frozenset(entry.allowed)
        demand = fitted(self._demand(entry), places)
        return Applicant(entry.id, demand, allowed, self._not_ready(entry) or tuning)

    def _live_tuning(self) -> str | None:
        """Return why nothing starts while a tuning measures; None if none does."""
        try:
            ensure_no_other_tuning(self._queue.path.parent / "tunings")
        except AlreadyTuningError as error:
            return str(error)
        return None

    def _not_ready(self, entry: QueueEntry) -> str | None:
        if entry.progress.held is not None:
            return entry.progress.held
        delay = self._delays.get(entry.id)
        if delay is not None and self._clock() < delay.until_s:
            return delay.sentence
        try:
            self._queue.complete_request(entry)
        except EntryError as error:
            return str(error)
        return self._waits_for(entry.after)

    def _waits_for(self, after: str | None) -> str | None:
        """Return why an entry still waits for the run or entry `after`; None if that has ended or was deleted."""
        if after is None:
            return None
        if "/" not in after:
            return None if self._queue.read().find(after) is None else f"It starts after {after} has ended."
        folder = RunFolder(Path(after))
        try:
            live = folder.path.is_dir() and (read_status(folder).live or is_fallback_pending(folder))
        except OSError as error:
            return f"Whether run {folder.id} has ended cannot be read: {error.strerror}."
        return f"It starts after run {folder.id} has ended." if live else None

    def _demand(self, entry: QueueEntry) -> Demand:
        """Return the demand, predicted anew after each run that has ended, since its peak corrects the prediction."""
        least = entry.progress.promised_bytes if entry.progress.requeued else None
        if self._machine.ended_runs != self._ended_runs:
            self._ended_runs = self._machine.ended_runs
            self._demands.clear()
        key = (entry.id, least)
        if key not in self._demands:
            self._demands[key] = demand_of(entry.request, entry.gpus, entry.cores, least)
        return self._demands[key]

    def _follow(self, entry: QueueEntry) -> None:
        """Remove an entry whose run has ended, or requeue it if another program or a reboot ended the run."""
        folder = entry.run_folder
        if folder is None or not folder.path.is_dir():
            self._forget(entry)
            return
        try:
            status = read_status(folder)
            if status.live or status.kind == "foreign" or is_fallback_pending(folder):
                return
            chance = second_chance(entry, folder, status)
            if chance is None:
                self._forget(entry)
            elif chance.run is not None:
                self._queue.update(entry.id, run=str(chance.run.path))
            else:
                self._queue.update(
                    entry.id, state="waiting", keys=(), requeued=chance.sentence, promised_bytes=chance.least_bytes
                )
        except (OSError, QueueError) as error:
            log(f"{entry.id}: {error}")

    def _forget(self, entry: QueueEntry) -> None:
        try:
            with self._queue.locked():
                self._queue.remove(entry)
        except (OSError, QueueError) as error:
            log(f"{entry.id}: {error}")

    def _note(self, entry: QueueEntry, attempt: Attempt) -> None:
        """Hold an entry that cannot be started, or delay it if the reason is temporary."""
        if attempt.run is not None:
            self._delays.pop(entry.id, None)
            return
        self._delays[entry.id] = _Delay(attempt.sentence, self._clock() + RETRY_S)
        if attempt.transient:
            return
        log(f"{entry.id}: {attempt.sentence}")
        try:
            self._queue.update(entry.id, held=f"{attempt.sentence} `tuner-tui queue release {entry.id}` tries again.")
        except (OSError, QueueError) as error:
            log(f"{entry.id}: {error}")

    def _write_reasons(self, reasons: dict[str, str]) -> None:
        if reasons == self._written:
            return
        try:
            write_atomic(self._queue.reasons, json.dumps(reasons, indent=1))
        except OSError as error:
            log(f"{self._queue.reasons}: {error.strerror}")
            return
        self._written = reasons


def log(message: str) -> None:
    """Write a message to standard error, which is the dispatcher's log."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


def serve(queue: Queue, dispatcher: Dispatcher, lock: int, wait: Callable[[float], object]) -> None:
    """Work until nothing is left to do. The lock is given up while the queue is locked, so that whoever adds an entry
    then finds either a dispatcher that will see it, or none."""
    while True:
        try:
            if dispatcher.step():
                continue
            with queue.locked():
                if dispatcher.ends():
                    os.close(lock)
                    return
        except (OSError, QueueError) as error:
            log(str(error))
        wait(PERIOD_S)


def main(argv: list[str]) -> None:
    """Dispatch the queue of the state folder `argv[0]`; with `--detach` in the background."""
    os.environ["TUNER_STATE_DIR"] = argv[0]
    queue = open_queue()
    if "--detach" in argv and os.fork():
        os._exit(0)  # init adopts the dispatcher
    try:
        lock = acquire_lock(queue.dispatcher_lock)
    except LockedError:
        return
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL if number == signal.SIGINT else _nothing)
    serve(queue, Dispatcher(queue, DispatchedMachine(runs_dir())), lock, time.sleep)


def _nothing(number: int, frame: FrameType | None) -> None:
    """Ignore SIGHUP. A handler, because child processes inherit ignored signals."""


if __name__ == "__main__":
    main(sys.argv[1:])
