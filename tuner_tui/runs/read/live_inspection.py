"""Looks into a run of this machine: where its processes are and what it waits for, and what makes its steps slow."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.files import write_atomic
from tuner_tui.core.json_struct import to_json
from tuner_tui.core.procfs import ProcessStat
from tuner_tui.hardware.process_sampler import read_queued_s
from tuner_tui.inspection.ask_profile import ProfileAnswer, ask_for_profiles, report_profile, watch_lines
from tuner_tui.inspection.peak_memory import RecordedPeak
from tuner_tui.inspection.slow_step import HotLine, SlowStep, judge_step
from tuner_tui.inspection.step_trace import PartTime, StepTimes, read_trace, reduce_trace
from tuner_tui.runs.events.progress import rates_of
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.recorded_batches import read_peaks
from tuner_tui.runs.read.status import InspectionError, read_status
from tuner_tui.runs.store.folder import RunFolder, read_supervisor_state
from tuner_tui.runs.supervise.run_processes import find_processes
from tuner_tui.runs.supervise.stall import Inspection, inspect_run

PROFILED_STEPS = 10
WATCH_S = 2.0
"""Seconds of looks at the stacks before the steps are profiled; longer where a step takes longer."""
MAX_WATCH_S = 10.0


class RankProfile(Struct, frozen=True):
    """One rank. `trace` is its file for Perfetto, `problem` why that could not be written.

    `lost_s`: the seconds that the training lost. `compiled`: torch.compile hides modules, at least in parts.
    """

    rank: int
    times: StepTimes
    verdict: SlowStep
    lost_s: float
    compiled: bool
    trace: Path | None = None
    problem: str | None = None


class RunProfile(Struct, frozen=True):
    """The profiled ranks, the one that decides first; and the sentences of those that were not.

    `observed`: where none was, the parts of a step that the observer times anyway.
    """

    ranks: tuple[RankProfile, ...]
    refusals: tuple[str, ...] = ()
    observed: StepTimes | None = None


def inspect_folder(folder: RunFolder) -> Inspection:
    """Ask the processes of the run; takes two seconds at most. Raises `InspectionError` if none of them is here."""
    everybody, state, host = _processes_here(folder)
    return inspect_run(everybody, state, host, time.time())


def profile_folder(folder: RunFolder, steps: int, tell: Callable[[str], None] = lambda _: None) -> RunProfile:
    """Profile `steps` steps of each rank on this machine, and save their traces in the folder.

    Raises `InspectionError` with a sentence if none can be profiled. `tell` receives what happens meanwhile.
    """
    ranks, everybody, state = _ranks_here(folder)
    step_s = state.rates.step_time_s or 0.0
    tell("looking at the stacks")
    numbers = {process.pid: rank for rank, process in ranks.items()}
    before, watched_s = _queued_s(ranks), min(MAX_WATCH_S, max(WATCH_S, 2 * step_s))
    lines = watch_lines(everybody, numbers, watched_s)
    queued = {rank: (seconds - before[rank]) / watched_s for rank, seconds in _queued_s(ranks).items()}
    answers = ask_for_profiles(ranks, steps, step_s, tell)
    tell("reading the trace")
    profiles, refusals = [], []
    for answer in answers:
        problem = answer.refusal
        try:
            if problem is None:
                profiles.append(_read_answer(folder, answer, lines.get(answer.rank, ()), state, queued[answer.rank]))
        except ValueError as error:
            problem = str(error)
        if problem is not None:
            refusals.append(f"Rank {answer.rank} was not profiled: {problem}.")
    if not profiles:
        observed = _observed_parts(state)
        if observed is None:
            raise InspectionError(" ".join(refusals))
        return RunProfile((), tuple(refusals), observed)
    # The rank that waits least for the others is the one that they wait for.
    profiles.sort(key=lambda profile: profile.times.ranks_s)
    report_profile(ranks[profiles[0].rank], to_json(profiles[0].verdict, whole=True))
    return RunProfile(tuple(profiles), tuple(refusals))


def record_memory(
    folder: RunFolder, steps: int, tell: Callable[[str], None] = lambda _: None
) -> tuple[RecordedPeak, ...]:
    """Record what holds the memory of each rank on this machine for `steps` steps.

    Raises `InspectionError` with a sentence if none can be recorded. `tell` receives what happens meanwhile.
    """
    ranks, _, state = _ranks_here(folder)
    answers = ask_for_profiles(ranks, steps, state.rates.step_time_s or 0.0, tell, memory=True)
    recorded = {answer.rank for answer in answers if answer.refusal is None}
    peaks = tuple(peak for peak in read_peaks(folder, state) if peak.rank in recorded)
    if not peaks:
        reasons = " ".join(f"Rank {answer.rank} was not recorded: {answer.refusal}." for answer in answers)
        raise InspectionError(f"{reasons} `tuner-tui estimate --by line` shows what is known without a GPU.")
    return peaks


def _ranks_here(folder: RunFolder) -> tuple[dict[int, ProcessStat], tuple[ProcessStat, ...], RunState]:
    """The process of each rank on this machine, all of the run, and its state. Raises `InspectionError` without any."""
    everybody, state, host = _processes_here(folder)
    of_pid = {process.pid: process for process in everybody}
    ranks = {
        rank.rank: of_pid[rank.pid] for rank in state.ranks.values() if rank.host in (None, host) and rank.pid in of_pid
    }
    if not ranks:
        raise InspectionError(
            f"No process of {folder.id} reports steps here: without the observer none can be profiled."
        )
    return ranks, everybody, state


def _observed_parts(state: RunState) -> StepTimes | None:
    """The step as the counters have it: waiting for data, the code after the optimizer step, and the rest."""
    step_s, data, after = state.rates.step_time_s, state.rates.data_wait_share, state.rates.between_share
    if step_s is None or data is None:
        return None
    shares = {"data": data, "the rest": 1 - data - (after or 0.0)}
    shares |= {} if after is None else {"after the step": after}
    parts = tuple(PartTime(name, step_s * share, 0.0) for name, share in shares.items())
    return StepTimes(0, str(state.in_effect.get("device")), step_s, step_s, parts, (), ())


def _queued_s(ranks: Mapping[int, ProcessStat]) -> dict[int, float]:
    return {rank: read_queued_s(Path("/proc"), process.pid) or 0.0 for rank, process in ranks.items()}


def _read_answer(
    folder: RunFolder, answer: ProfileAnswer, lines: tuple[HotLine, ...], state: RunState, queued: float
) -> RankProfile:
    assert answer.plain is not None
    plain, rates = answer.plain, rates_of([state.ranks[answer.rank]])
    if rates.step_time_s is not None and rates.data_wait_share is not None:  # else by a few steps
        plain = replace(plain, step_s=rates.step_time_s, data_s=rates.step_time_s * rates.data_wait_share)
    times = reduce_trace(read_trace(answer.trace), plain)
    path, problem = folder.path / f"trace-rank{answer.rank}.json.gz", None
    try:
        write_atomic(path, gzip.compress(answer.trace, 3))
    except OSError as error:
        problem = f"The trace could not be saved: {error.strerror}."
    verdict, saved = judge_step(times, lines, queued), None if problem else path
    return RankProfile(answer.rank, times, verdict, answer.lost_s, answer.compiled, saved, problem)


def _processes_here(folder: RunFolder) -> tuple[tuple[ProcessStat, ...], RunState, str]:
    """The processes of the run on this machine, its state, and the name of the machine."""
    status = read_status(folder)
    supervision = read_supervisor_state(folder.state)
    if not status.live or supervision is None or supervision.training is None:
        raise InspectionError(f"{folder.id} has no process here that could answer. {status.sentence}")
    processes = find_processes(folder.path, supervision.training, recorded=supervision.apart)
    everybody = (*processes.members, *processes.detached)
    return everybody, RunReader(folder).poll().state, supervision.machine.host
