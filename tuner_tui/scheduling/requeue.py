"""Requeues a run once if another program or a reboot ended it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tuner_tui.advice.crash.cause import crash_findings
from tuner_tui.advice.crash.oom_analysis import CAPACITY, OWN, TRIED, first_size, held_by_others, other_processes
from tuner_tui.advice.situation import situation_of_run
from tuner_tui.advice.thresholds import OTHER_PROCESS_BYTES
from tuner_tui.core.files import LineTail
from tuner_tui.core.procfs import this_machine
from tuner_tui.core.units import format_size
from tuner_tui.hardware.sample import HostSample, Sample
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.read.measured_memory import last_counters
from tuner_tui.runs.read.reader import RunReader, RunView
from tuner_tui.runs.read.status import RunStatus, continuation_of
from tuner_tui.runs.store.codec import decode_sample
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.supervisor_state import read_supervisor_state
from tuner_tui.scheduling.entry import QueueEntry

GROWTH_SHARE = 0.05
"""Share of the host's memory by which others must have grown to count as the cause."""
OUT_OF_MEMORY_OUTCOMES = frozenset({"out-of-memory", "failed", "killed"})


@dataclass(frozen=True, slots=True)
class SecondChance:
    """The entry goes on as `run`, which its fallback has started; or comes back into the queue for the reason
    `sentence`, and needs at least `least_bytes` of each place."""

    run: RunFolder | None = None
    sentence: str = ""
    least_bytes: int | None = None


def second_chance(entry: QueueEntry, folder: RunFolder, status: RunStatus) -> SecondChance | None:
    """Return how the entry continues after its run has ended; None if it does not."""
    view = RunReader(folder).poll()
    following = continuation_of(folder, view.state)
    if following is not None and following.path.is_dir():
        return SecondChance(following)
    if entry.progress.requeued is not None:
        return None
    if status.kind == "lost":
        known = read_supervisor_state(folder.state)
        if known is None or known.machine.boot_id == this_machine().boot_id:
            return None
        return SecondChance(sentence=_again(folder, "the machine was restarted"), least_bytes=_least(entry, None))
    if status.outcome not in OUT_OF_MEMORY_OUTCOMES:
        return None
    why = card_neighbour(entry, folder, view) if entry.gpus else host_neighbour(folder, view.state, status.outcome)
    return None if why is None else SecondChance(sentence=_again(folder, why), least_bytes=_least(entry, folder))


def _again(folder: RunFolder, why: str) -> str:
    at = time.strftime("%H:%M")
    return f"It is back in the queue, once, since {at}: run {folder.id} ended because {why}."


def _least(entry: QueueEntry, folder: RunFolder | None) -> int | None:
    counters = None if folder is None else last_counters(folder.events)
    held = None if counters is None else counters.reserved_peak_bytes if entry.gpus else counters.rss_peak_bytes
    known = [size for size in (entry.progress.promised_bytes, held) if size is not None]
    return max(known, default=None)


def card_neighbour(entry: QueueEntry, folder: RunFolder, view: RunView) -> str | None:
    """Who took the memory that CUDA missed; None for any other end, and if the run would not have fitted alone.

    The message of PyTorch says it, else the last samples of the cards.
    """
    situation = situation_of_run(folder, view)
    if not any(finding.cause == "gpu-oom" for finding in crash_findings(situation)):
        return None
    seen = view.state.out_of_memory
    message = "\n".join(situation.log) if seen is None else seen.message
    tried, own, total = (first_size(pattern, message) for pattern in (TRIED, OWN, CAPACITY))
    promised, held = entry.progress.promised_bytes, _reserved(folder)
    if tried is not None and own is not None and total is not None:
        fitted = own + tried <= total
    else:
        fitted = promised is None or held is None or held <= promised
    others = (*other_processes(message), *held_by_others(message)) or _others_on_cards(folder)
    return f"the GPU ran out of memory: {', '.join(others)}" if fitted and others else None


def _reserved(folder: RunFolder) -> int | None:
    counters = last_counters(folder.events)
    return None if counters is None else counters.reserved_peak_bytes


def _others_on_cards(folder: RunFolder) -> tuple[str, ...]:
    """Who held much of the run's cards when it was sampled last, as sentences."""
    samples = _samples(folder)
    if not samples:
        return ()
    own = {process.pid for sample in samples for process in sample.processes}
    used = {gpu.index for sample in samples for gpu in sample.gpus for each in gpu.processes or () if each.pid in own}
    return tuple(
        f"{each.user or 'somebody'}: {each.command or each.pid} holds {format_size(each.memory_bytes)}"
        for gpu in samples[-1].gpus
        if gpu.index in used
        for each in gpu.processes or ()
        if each.pid not in own and (each.memory_bytes or 0) >= OTHER_PROCESS_BYTES
    )


def _samples(folder: RunFolder) -> list[Sample]:
    return [found for line in LineTail(folder.samples).lines() if (found := decode_sample(line)) is not None]


def host_neighbour(folder: RunFolder, state: RunState, outcome: str) -> str | None:
    """Who took the memory of the host while the run was on; None if others did not grow, or it was not the cause."""
    if outcome != "out-of-memory" and state.out_of_memory is None:
        return None
    samples = _samples(folder)
    outside = [size for sample in samples if (size := _outside(sample)) is not None]
    total = next((sample.host.ram_total_bytes for sample in samples if sample.host.ram_total_bytes), None)
    if len(outside) < 2 or total is None:
        return None
    grown = max(outside) - outside[0]
    if grown < GROWTH_SHARE * total:
        return None
    return f"the machine ran out of memory: other processes took {format_size(grown)} while it ran"


def _outside(sample: Sample) -> int | None:
    """What others hold of the host's memory."""
    host: HostSample = sample.host
    if host.ram_used_bytes is None:
        return None
    return host.ram_used_bytes - sum(process.rss_bytes or 0 for process in sample.processes)
