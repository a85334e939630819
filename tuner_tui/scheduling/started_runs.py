"""Finds the live runs of this user, queued or not, and how much memory each may still take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner_tui.hardware.inventory import Gpu
from tuner_tui.memory.calibration import CALIBRATED_UNCERTAINTY
from tuner_tui.memory.device import CONTEXT_BYTES
from tuner_tui.runs.events.types import Steps
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.read.measured_memory import last_counters
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import RunFolder, list_runs
from tuner_tui.runs.store.record import readable_record
from tuner_tui.runs.store.supervisor_state import read_supervisor_state
from tuner_tui.runs.supervise.run_processes import ProcessSnapshot
from tuner_tui.scheduling.demand import demand_of, parse_threads
from tuner_tui.scheduling.entry import QueueEntry
from tuner_tui.scheduling.occupancy import ProcessSnapshotTable, StartedRun, process_environment, visible_keys
from tuner_tui.settings.distributed import process_count

SETTLED_STEPS = 20
"""Optimizer steps after which the peak of a run counts as its own: it has seen batches of many lengths by then."""
ARRIVAL_S = 900.0
"""Seconds in which a run that was started directly may still come to a card: models are loaded on the processor."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What does not change in a run's life: its prediction, and its environment."""

    predicted_bytes: int | None
    processes: int
    environment: Mapping[str, str]


class StartedRuns:
    """Finds the live runs in `root`. Ended runs are read once."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._ended: set[str] = set()
        self._known: dict[str, _Known] = {}
        self._seen_s: dict[str, float] = {}

    @property
    def ended(self) -> int:
        """How many runs are known to have ended: predictions change with each."""
        return len(self._ended)

    def read(self, entries: Iterable[QueueEntry], cards: Sequence[Gpu | None]) -> tuple[StartedRun, ...]:
        """The live runs; those of `entries` have what was promised to them."""
        own = {entry.progress.run: entry for entry in entries if entry.progress.run is not None}
        processes, snapshot = ProcessSnapshotTable(), ProcessSnapshot()
        found = []
        for folder in list_runs(self._root):
            if folder.id in self._ended:
                continue
            status = read_status(folder, snapshot=snapshot)
            if not status.live:
                if status.kind in ("ended", "broken"):
                    self._ended.add(folder.id)
                continue
            self._seen_s.setdefault(folder.id, self._clock())
            found.append(self._describe(folder, own.get(str(folder.path)), processes, cards))
        return tuple(found)

    def _describe(
        self,
        folder: RunFolder,
        entry: QueueEntry | None,
        processes: ProcessSnapshotTable,
        cards: Sequence[Gpu | None],
    ) -> StartedRun:
        state = read_supervisor_state(folder.state)
        training = None if state is None else state.training
        pids = frozenset[int]() if training is None else processes.tree(training.pid)
        counters = last_counters(folder.events)
        known = self._facts(folder, entry, None if training is None else training.pid)
        name = f"run {folder.id}"
        has_cards = any(card is not None for card in cards)
        if entry is not None and entry.gpus:
            promised = entry.progress.promised_bytes
            return StartedRun(
                name,
                keys=frozenset(entry.progress.keys),
                bound=True,
                pids=pids,
                peak_bytes=_peak(counters, promised, on_gpu=True),
                reported_bytes=_reported(counters),
                lead=training,
            )
        on_gpu = has_cards and entry is None and not _trains_on_host(counters)
        visible = visible_keys(cards, known.environment.get("CUDA_VISIBLE_DEVICES"))
        if entry is None and visible == frozenset() and has_cards:
            on_gpu = False
        threads = parse_threads(known.environment, known.processes) if entry is None else entry.cores
        return StartedRun(
            name,
            gpus=on_gpu,
            keys=visible if on_gpu else None,
            arriving=self._clock() - self._seen_s[folder.id] < ARRIVAL_S and counters is None,
            pids=pids,
            peak_bytes=_peak(
                counters,
                known.predicted_bytes if entry is None else entry.progress.promised_bytes,
                on_gpu=on_gpu,
                processes=known.processes,
            ),
            reported_bytes=_reported(counters),
            cores=threads,
            lead=training,
        )

    def _facts(self, folder: RunFolder, entry: QueueEntry | None, pid: int | None) -> _Known:
        if folder.id in self._known:
            return self._known[folder.id]
        if pid is None:
            return _Known(None, 1, {})
        record = readable_record(folder)
        if record is None:
            known = _Known(None, 1, process_environment(pid))
        else:
            request = LaunchRequest.resume(folder, record, {})
            predicted = None if entry is not None else demand_of(request, gpus=1).peak_bytes
            known = _Known(predicted, process_count(record.job), process_environment(pid))
        self._known[folder.id] = known
        return known


def _peak(counters: Steps | None, promised: int | None, *, on_gpu: bool, processes: int = 1) -> int | None:
    """The most that a run takes: what it has measured once it has settled, before that at least what was promised."""
    measured = None
    if counters is not None:
        reported = _reported(counters) if on_gpu else counters.rss_peak_bytes
        measured = None if reported is None else round(reported * (1 + CALIBRATED_UNCERTAINTY)) * processes
    if measured is None or counters is None:
        return promised
    if counters.own_steps >= SETTLED_STEPS:
        return measured
    return None if promised is None else max(measured, promised)


def _reported(counters: Steps | None) -> int | None:
    held = None if counters is None else counters.reserved_peak_bytes or counters.allocated_peak_bytes
    return None if held is None else held + CONTEXT_BYTES


def _trains_on_host(counters: Steps | None) -> bool:
    return counters is not None and counters.allocated_peak_bytes is None and counters.rss_peak_bytes is not None
