"""Everything that trains on this machine now: GPUs, host, and jobs with the share of each process. Read-only.

Used by `watch`, which reads everything once a second: only live runs are opened, and only what is shown is read
(`record.read_record` would import the settings).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.files import read_json
from tuner_tui.core.json_struct import Count, Identifier, PathText, Pid
from tuner_tui.core.line_files import LineTail
from tuner_tui.core.redaction import redact_argv
from tuner_tui.hardware.environment import sees_host_pids
from tuner_tui.hardware.host_jobs import JobProcess, JobTree, find_jobs, looks_like_training
from tuner_tui.hardware.inventory import GpuProblem, GpuProcess
from tuner_tui.hardware.process_table import HostProcess, ProcessLoad, ProcessTable
from tuner_tui.hardware.processes import Role
from tuner_tui.hardware.sample import Sample
from tuner_tui.hardware.sampler import Sampler, open_sampler
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.progress import known_sum, phase_at, seconds_left
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.read.event_sampling import RankClocks, sampled_new_lines
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.codec import decode_events
from tuner_tui.runs.store.folder import RunFolder, list_runs, read_supervisor_state
from tuner_tui.runs.supervise.run_processes import ProcessSnapshot

JOB_SCAN_INTERVAL = 2
"""Jobs are read at every second sample: the driver averages the share of a process over seconds."""
WORKER_SHARES = 3
"""One in so many processes of the jobs that are not trainers is read at a time: `/proc` of a hundred loader workers,
read every two seconds, is most of the cost of watching."""
MANY_PROCESSES = 32
HOST_PIDS_NOTE = (
    "The driver reports host pids, which this container cannot see: jobs are found among the "
    "container's processes, and their GPU memory is unknown. GPU totals are correct."
)


class WatchedProcess(Struct, frozen=True):
    """One process of a job. `role` is `main`, `worker` or `other`; `gpus` are indices.

    `cpu_pct` is percent of one core, `sm_pct` the mean over its GPUs. A process that only the driver reports (another
    user's, or one that has just ended) has no command and no load.
    """

    pid: Pid
    role: str
    user: str | None = None
    command: tuple[str, ...] = ()
    gpus: tuple[Count, ...] = ()
    gpu_memory_bytes: int | None = None
    sm_pct: float | None = None
    cpu_pct: float | None = None
    rss_bytes: int | None = None
    started_s: float | None = None


class WatchedJob(Struct, frozen=True):
    """A job: its processes (the one asked for first, then main processes) and their sums.

    `run` is set for runs of this program.
    """

    pid: Pid
    user: str | None
    command: tuple[str, ...]
    started_s: float | None
    processes: tuple[WatchedProcess, ...]
    run: LiveRun | None = None
    gpus: tuple[Count, ...] = ()
    gpu_memory_bytes: int | None = None
    sm_pct: float | None = None
    cpu_pct: float | None = None
    rss_bytes: int | None = None

    @property
    def role(self) -> str:
        """How many trainers and loader workers there are: `8, 64 workers`; all processes where none is a trainer."""
        roles = [process.role for process in self.processes]
        workers = roles.count("worker")
        return f"{roles.count('main') or len(roles)}" + f", {workers} worker{'s' * (workers != 1)}" * bool(workers)


class MachineView(Struct, frozen=True):
    """The machine at one moment. `problem` says why there are no GPUs; `notes` name what the figures leave out."""

    sample: Sample
    jobs: tuple[WatchedJob, ...]
    problem: GpuProblem | None = None
    notes: tuple[str, ...] = ()


class MachineMonitor:
    """Samples the machine. `look` may be called by one thread at a time, about once a second.

    A job is found if one of its processes uses a GPU, was launched by this program, or looks like a training.
    `host_pids`: whether the pids reported by the driver are those of `table`.
    """

    def __init__(self, sampler: Sampler, table: ProcessTable, runs: LiveRuns, *, host_pids: bool) -> None:
        self._sampler = sampler
        self._table = table
        self._runs = runs
        self._host_pids = host_pids
        self._trees: tuple[JobTree, ...] = ()
        self._seeds: frozenset[int] = frozenset()
        self._trainings: frozenset[int] = frozenset()
        self._processes: Mapping[int, HostProcess] = {}
        self._jobs: tuple[WatchedJob, ...] = ()
        self._watched: dict[int, tuple[HostProcess, ProcessLoad, WatchedProcess]] = {}
        self._looks = 0

    def look(self, pid: int | None = None) -> MachineView:
        """The current view; with a `pid`, only the job of that process, which comes first (none once it has ended).

        GPUs and host are read at each call, jobs at every `JOB_SCAN_INTERVAL`th.
        """
        sample = self._sampler.sample()
        if self._looks < 2 or self._looks % JOB_SCAN_INTERVAL == 0:  # a load needs two readings
            self._jobs = tuple(self._read_jobs(sample, pid))
        self._looks += 1
        hidden = not self._host_pids and bool(sample.gpus)
        return MachineView(sample, self._jobs, self._sampler.problem, (HOST_PIDS_NOTE,) if hidden else ())

    def _read_jobs(self, sample: Sample, pid: int | None) -> list[WatchedJob]:
        runs = self._runs.read()
        use: dict[int, list[tuple[int, GpuProcess]]] = {}
        for gpu in sample.gpus if self._host_pids else ():
            for process in gpu.processes or ():
                use.setdefault(process.pid, []).append((gpu.index, process))
        self._find(pid, use.keys(), {run.training for run in runs if run.training is not None})
        all_jobs = (self._job(tree, use, runs) for tree in self._trees)
        jobs = [job for job in all_jobs if job.processes]  # the others ended since the table was read
        if pid is None:
            shown = {process.pid for job in jobs for process in job.processes}
            return jobs + [job_of_hidden_process(number, use[number]) for number in use if number not in shown]
        return [
            replace(job, processes=tuple(sorted(job.processes, key=lambda process: process.pid != pid))) for job in jobs
        ]

    def _find(self, pid: int | None, on_gpus: Set[int], ours: Set[int]) -> None:
        """The processes of all jobs; found anew only when processes have started, ended or changed."""
        # Most looks find the same processes with new loads. Finding trainings looks at every command line of the
        # machine, and building the trees at every parent, so both are done only when the table or the processes to
        # begin with changed.
        changed = False
        if self._table.read(self._due(every=pid is not None)):
            before, self._processes = self._processes, self._table.processes
            changed = before != self._processes
            if changed:
                self._trainings = frozenset(pid for pid, each in self._processes.items() if looks_like_training(each))
        seeds = frozenset([pid]) if pid is not None else self._trainings | on_gpus | ours
        if changed or seeds != self._seeds:
            self._seeds = seeds
            self._trees = find_jobs(self._processes, sorted(seeds), ours)
            self._watched.clear()

    def _due(self, every: bool) -> set[int]:
        """The processes of the jobs to read now: trainers each time, the others in turn if there are many."""
        turn = self._looks // JOB_SCAN_INTERVAL % WORKER_SHARES
        members = [member for tree in self._trees for member in tree.members]
        every = every or len(members) <= MANY_PROCESSES
        return {
            member.process.pid
            for member in members
            if every or member.role is Role.MAIN or member.process.pid % WORKER_SHARES == turn
        }

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until every GPU has answered once; False on timeout."""
        return self._sampler.wait_ready(timeout_s)

    def close(self) -> None:
        self._sampler.close()

    def _job(
        self, tree: JobTree, use: Mapping[int, Sequence[tuple[int, GpuProcess]]], runs: Iterable[LiveRun]
    ) -> WatchedJob:
        watched = (self._watch(member, use.get(member.process.pid, ())) for member in tree.members)
        processes = [process for process in watched if process is not None]
        lead, pids = tree.lead, {process.pid for process in processes}
        run = next((run for run in runs if run.training in pids), None)
        job = WatchedJob(tree.root, lead.user, redacted_command(lead), lead.started_s, tuple(processes), run)
        return with_totals(job)

    def _watch(self, member: JobProcess, use: Sequence[tuple[int, GpuProcess]]) -> WatchedProcess | None:
        """The process with its load; the one of the last reading where nothing is new, None for one that has ended."""
        process, load = member.process, self._table.load(member.process.pid)
        if load is None:
            self._watched.pop(process.pid, None)
            return None
        # The table gives the same objects while nothing is new: comparing identities is enough.
        watched = self._watched.get(process.pid)
        if watched is not None and watched[0] is process and watched[1] is load and not use:
            return watched[2]
        shown = WatchedProcess(
            process.pid,
            member.role.value,
            process.user,
            redacted_command(process),
            *summarize_gpu_use(use),
            load.cpu_pct,
            load.rss_bytes,
            process.started_s,
        )
        if not use:
            self._watched[process.pid] = (process, load, shown)
        return shown


def redacted_command(process: HostProcess) -> tuple[str, ...]:
    """The command line without secrets, or the kernel's name of the process if it is hidden."""
    return redact_argv(process.command) or (process.comm,)


def summarize_gpu_use(use: Sequence[tuple[int, GpuProcess]]) -> tuple[tuple[int, ...], int | None, float | None]:
    """The GPU indices of a process, its total memory, and its mean share of their time."""
    shares = [process.sm_pct for _, process in use if process.sm_pct is not None]
    return (
        tuple(index for index, _ in use),
        known_sum(process.memory_bytes for _, process in use),
        sum(shares) / len(shares) if shares else None,
    )


def with_totals(job: WatchedJob) -> WatchedJob:
    """The job with the sums of its processes; `sm_pct` is the mean over its GPUs."""
    gpus = sorted({index for process in job.processes for index in process.gpus})
    shares = [process.sm_pct * len(process.gpus) for process in job.processes if process.sm_pct is not None]
    return replace(
        job,
        gpus=tuple(gpus),
        gpu_memory_bytes=known_sum(process.gpu_memory_bytes for process in job.processes),
        sm_pct=sum(shares) / len(gpus) if shares and gpus else None,
        cpu_pct=known_sum(process.cpu_pct for process in job.processes),
        rss_bytes=known_sum(process.rss_bytes for process in job.processes),
    )


def job_of_hidden_process(pid: int, use: Sequence[tuple[int, GpuProcess]]) -> WatchedJob:
    """A job for a process that the driver reports and `/proc` does not show."""
    first = use[0][1]
    process = WatchedProcess(pid, Role.OTHER.value, first.user, (), *summarize_gpu_use(use))
    return with_totals(WatchedJob(pid, first.user, (), None, (process,)))


def open_machine_monitor(root: Path) -> MachineMonitor:
    """A monitor of this machine; `root` is the folder of all runs."""
    table = ProcessTable()
    existing = next(folder for folder in (root, *root.parents) if folder.exists())  # its disk is sampled
    return MachineMonitor(open_sampler(existing), table, LiveRuns(root, time.time), host_pids=sees_host_pids())


SCAN_INTERVAL_S = 3.0


class LiveRun(Struct, frozen=True):
    """A live run. `training` and `supervisor` are pids."""

    run: Identifier
    path: PathText
    training: Pid | None = None
    supervisor: Pid | None = None
    preset: str | None = None
    phase: str | None = None
    step: int | None = None
    total_steps: int | None = None
    eta_s: float | None = None
    loss: float | None = None


class LiveRuns:
    """The live runs in `root`; `clock` gives seconds since the epoch."""

    def __init__(self, root: Path, clock: Callable[[], float]) -> None:
        self._root = root
        self._clock = clock
        self._ended: set[str] = set()
        self._followed: dict[str, _Followed] = {}
        self._looked_s = float("-inf")

    def read(self) -> tuple[LiveRun, ...]:
        """The runs that are live now, newest first, with their current progress."""
        now_s = self._clock()
        if not 0 <= now_s - self._looked_s < SCAN_INTERVAL_S:  # a clock that was set back waits for nothing
            self._looked_s = now_s
            self._look()
        return tuple(followed.read(now_s) for followed in self._followed.values())

    def _look(self) -> None:
        followed, snapshot = {}, ProcessSnapshot()
        for folder in list_runs(self._root):
            if folder.id in self._ended:
                continue
            status = read_status(folder, snapshot=snapshot)
            if status.live:
                followed[folder.id] = self._followed.get(folder.id) or _Followed(folder)
            elif status.kind in ("ended", "broken"):
                self._ended.add(folder.id)
        self._followed = followed


class _Followed:
    """One run, read incrementally."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._tail = LineTail(folder.events)
        self._clocks = RankClocks()
        self._state = RunState()
        preset = read_json(folder.record).get("preset")
        self._preset = preset if isinstance(preset, str) else None

    def read(self, now_s: float) -> LiveRun:
        events = list(decode_events(sampled_new_lines(self._tail)))
        self._state = state = fold_all(self._state, self._clocks.corrected(events, now_s))
        supervision = read_supervisor_state(self._folder.state)
        return LiveRun(
            run=self._folder.id,
            path=str(self._folder.path),
            training=None if supervision is None or supervision.training is None else supervision.training.pid,
            supervisor=None if supervision is None else supervision.supervisor.pid,
            preset=self._preset,
            phase=phase_at(state, now_s),
            step=state.step,
            total_steps=state.total_steps,
            eta_s=seconds_left(state, now_s),
            loss=state.loss,
        )
