"""The places of this machine at one moment: what processes hold of them, and what started runs will still take."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tuner_tui.advice.thresholds import OTHER_PROCESS_BYTES
from tuner_tui.core.procfs import PROC, ProcessId, descendants_in, read_text
from tuner_tui.hardware.environment import visible_gpus
from tuner_tui.hardware.inventory import Gpu, GpuProcess
from tuner_tui.hardware.processes.process_names import user_name
from tuner_tui.hardware.sample import GpuSample, Sample
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
from tuner_tui.scheduling.admission import Holder, Place
from tuner_tui.scheduling.demand import demand_of, parse_threads
from tuner_tui.scheduling.entry import QueueEntry
from tuner_tui.settings.distributed import process_count

HOST = "host"
"""The key of the host."""


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A live run, and what it may take.

    `gpus`: whether it trains on cards. `keys` are those that it can see; None: all. They are all its own where they
    are `bound` to it; else those where it is seen, and while it is `arriving`, just started and seen nowhere, any.
    `lead` is the process that was started, `pids` are all. `peak_bytes` is the most that it takes of each place; None:
    not known, so that it has them whole. `reported_bytes` is what it says it holds of a card. `cores` are those it
    uses of the host; None: all.
    """

    name: str
    gpus: bool = True
    keys: frozenset[str] | None = None
    bound: bool = False
    arriving: bool = False
    pids: frozenset[int] = frozenset()
    peak_bytes: int | None = None
    reported_bytes: int | None = None
    cores: int | None = None
    lead: ProcessId | None = None


class PlaceSampler(Protocol):
    """The part of `Sampler` that is used."""

    def sample(self, watched: Sequence[int] = ()) -> Sample:
        """The newest figures."""

    def cards(self) -> tuple[Gpu | None, ...]:
        """The cards, in the order of the samples."""


def read_places(sampler: PlaceSampler, runs: Sequence[StartedRun], cores: int) -> tuple[Place, ...]:
    """All cards, and the host with `cores` cores."""
    pids = sorted(pid for run in runs for pid in run.pids)
    sample = sampler.sample(pids)
    cards = (*sampler.cards(), *[None] * len(sample.gpus))
    seen = frozenset(process.pid for gpu in sample.gpus for process in gpu.processes or ())
    places = tuple(_card(gpu, card, runs, seen) for gpu, card in zip(sample.gpus, cards, strict=False))
    on_host = [run for run in runs if not run.gpus]
    return (*places, _host(sample, on_host, cores))


def _card(sample: GpuSample, gpu: Gpu | None, runs: Sequence[StartedRun], seen: frozenset[int]) -> Place:
    label = f"GPU {sample.index}"
    key = None if gpu is None else gpu.uuid
    total = sample.memory_total_bytes
    if total is not None and gpu is not None and gpu.memory_reserved_bytes is not None:
        total -= gpu.memory_reserved_bytes
    place = Place(
        key or label, label, total_bytes=total, used_bytes=sample.memory_used_bytes, problem=_problem(sample, gpu)
    )
    here = [run for run in runs if run.gpus and _is_on(run, place, sample.processes, seen)]
    return _with_holders(place, sample.processes, here)


def _problem(sample: GpuSample, gpu: Gpu | None) -> str | None:
    label = f"GPU {sample.index}"
    if sample.lost:
        return f"{label} is lost"
    if sample.age_s is not None or gpu is None:
        return f"{label} does not answer"
    if gpu.uuid is None:
        return f"{label} has no UUID to bind a run to"
    return f"{label} is in MIG mode" if gpu.mig else None


def _is_on(run: StartedRun, place: Place, processes: tuple[GpuProcess, ...] | None, seen: frozenset[int]) -> bool:
    """Whether the run uses the GPU or may start to."""
    if run.keys is not None and place.key not in run.keys:
        return False
    if run.bound or not run.pids & seen:
        return run.bound or run.arriving
    return any(process.pid in run.pids for process in processes or ())


def _with_holders(place: Place, processes: tuple[GpuProcess, ...] | None, here: Sequence[StartedRun]) -> Place:
    """The place with all holders of its memory, and with the claims of the runs there."""
    # used_bytes, which the driver measured, contains what each run holds already. A run claims the rest of its peak, so
    # that used + claimed is what the card will hold once all that have started are at their peak.
    holders: list[Holder] = []
    claimed = 0
    for run in here:
        held = _held(run, processes)
        claim = 0 if run.peak_bytes is None else max(0, run.peak_bytes - held)
        claimed += claim
        holders.append(Holder(run.name, held + claim))
    ours = frozenset(pid for run in here for pid in run.pids)
    holders += [Holder(_name(each), each.memory_bytes) for each in processes or () if each.pid not in ours]
    used = place.used_bytes or 0
    if processes is None and used >= OTHER_PROCESS_BYTES and not here:
        holders.append(Holder("processes that cannot be seen from here", used))
    large = any(holder.held_bytes is None or holder.held_bytes >= OTHER_PROCESS_BYTES for holder in holders)
    return replace(
        place,
        claimed_bytes=claimed,
        whole=any(run.peak_bytes is None for run in here),
        holders=tuple(holders),
        occupied=bool(here) or large,
    )


def _held(run: StartedRun, processes: tuple[GpuProcess, ...] | None) -> int:
    """What the run holds of a card: by the driver, else (in a container) by what it says itself."""
    if processes is None:
        return run.reported_bytes or 0
    return sum(process.memory_bytes or 0 for process in processes if process.pid in run.pids)


def _name(process: GpuProcess) -> str:
    command = process.command or f"process {process.pid}"
    return command if process.user in (None, user_name(os.getuid())) else f"{process.user}: {command}"


def _host(sample: Sample, runs: Sequence[StartedRun], cores: int) -> Place:
    host = sample.host
    rss = {process.pid: process.rss_bytes or 0 for process in sample.processes}
    busy = sum(process.cpu_pct or 0.0 for process in sample.processes) / 100
    others = max(0.0, (host.cpu_pct or 0.0) / 100 * cores - busy)
    holders, claimed, whole, taken = [], 0, False, 0
    for run in runs:
        held = sum(rss.get(pid, 0) for pid in run.pids)
        claim = 0 if run.peak_bytes is None else max(0, run.peak_bytes - held)
        claimed += claim
        whole = whole or run.peak_bytes is None
        taken += cores if run.cores is None else run.cores
        holders.append(Holder(run.name, held + claim))
    if others >= 1:
        holders.append(Holder(f"other processes keep {others:.1f} cores busy"))
    return Place(
        HOST,
        "this machine",
        "host",
        total_bytes=host.ram_total_bytes,
        used_bytes=host.ram_used_bytes,
        claimed_bytes=claimed,
        whole=whole,
        occupied=bool(runs),
        holders=tuple(holders),
        cores=cores,
        free_cores=max(0.0, cores - taken - others),
    )


def process_tree(snapshot: ProcessSnapshot, pid: int) -> frozenset[int]:
    """The process and all below it, of those that run."""
    found = {stat.pid for stat in descendants_in(snapshot.processes, [pid])}
    return frozenset(found | {stat.pid for stat in snapshot.processes if stat.pid == pid})


def process_environment(pid: int, proc: Path = PROC) -> Mapping[str, str]:
    """The environment that a process of this user was started with; empty where it may not be read."""
    pairs = (entry.partition("=") for entry in read_text(f"{proc}/{pid}/environ").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def visible_keys(cards: Sequence[Gpu | None], cuda_visible_devices: str | None) -> frozenset[str] | None:
    """The UUIDs of the cards that CUDA shows by the variable; None where it hides none."""
    if cuda_visible_devices is None:
        return None
    known = [card for card in cards if card is not None]
    shown = visible_gpus(known, cuda_visible_devices)
    return frozenset(card.uuid for card in known if card.index in shown and card.uuid is not None)


# The live runs of this user

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
        snapshot = ProcessSnapshot()
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
            found.append(self._describe(folder, own.get(str(folder.path)), snapshot, cards))
        return tuple(found)

    def _describe(
        self,
        folder: RunFolder,
        entry: QueueEntry | None,
        snapshot: ProcessSnapshot,
        cards: Sequence[Gpu | None],
    ) -> StartedRun:
        state = read_supervisor_state(folder.state)
        training = None if state is None else state.training
        pids = frozenset[int]() if training is None else process_tree(snapshot, training.pid)
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
    # Before it has settled, the larger of both: the peak of the first steps is often far below the later one.
    if counters.own_steps >= SETTLED_STEPS:
        return measured
    return None if promised is None else max(measured, promised)


def _reported(counters: Steps | None) -> int | None:
    held = None if counters is None else counters.reserved_peak_bytes or counters.allocated_peak_bytes
    return None if held is None else held + CONTEXT_BYTES


def _trains_on_host(counters: Steps | None) -> bool:
    return counters is not None and counters.allocated_peak_bytes is None and counters.rss_peak_bytes is not None
