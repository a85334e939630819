"""Every process of the host, read at a low cost, and the jobs they form: a trainer with its workers and ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tuner_tui.core.procfs import PROC, ProcessStat, list_pids, read_stat
from tuner_tui.hardware.process_names import ClassifiedProcess, Role, is_python, program_name, role_of
from tuner_tui.hardware.system_info import ProcessIdentity, process_identity

KERNEL_THREADS = 2
"""Pid of kthreadd, the parent of the kernel's threads on every Linux."""
SCAN_EVERY = 2
"""Calls of `read` per scan; a new process is found at the next scan."""
SHARES = 5
"""A scan reads one in `SHARES` of the processes that are known and not wanted: their load is not shown, and an old
process rarely executes another program."""
YOUNG_S = 2.0
"""A process younger than this may not have executed its program yet, so its identity is read once more."""
TORCH_AGES_S = (2.0, 20.0, 120.0)
"""Ages at which a Python process is checked for torch; a training has loaded it within its first minutes."""


@dataclass(frozen=True, slots=True)
class HostProcess:
    """The identity of a process. `command` is empty and `user` None where hidden; `started_s` is since the epoch.

    `torch` is True when it has loaded torch; None where this user may not look.
    """

    pid: int
    parent: int
    group: int
    session: int
    comm: str
    start_ticks: int = 0
    user: str | None = None
    command: tuple[str, ...] = ()
    started_s: float | None = None
    torch: bool | None = None


@dataclass(frozen=True, slots=True)
class ProcessLoad:
    """Percent of one core since the previous reading (None at the first one), and resident bytes."""

    cpu_pct: float | None
    rss_bytes: int


@dataclass(slots=True)
class _TableEntry:
    """The last reading of a process; `read_s` is monotonic, `settled` is False while it may still change program."""

    process: HostProcess
    cpu_s: float
    read_s: float
    load: ProcessLoad
    settled: bool
    torch_checks: int = 0


class ProcessTable:
    """The host's processes, without kernel threads. `read` is for one thread at a time.

    Identities come from psutil, once per process. Loads are read again and again, so they come straight from
    /proc/PID/stat, at a fifth of what psutil's two reads cost. The wanted processes are read at each call; every
    `SCAN_EVERY`th call is a scan, which finds new and ended processes and reads the new ones, the young ones, and the
    others in turn.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        *,
        proc: Path = PROC,
        identity: Callable[[int], ProcessIdentity | None] = process_identity,
    ) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._proc = str(proc)
        self._identity = identity
        self._entries: dict[int, _TableEntry] = {}
        self._ignored: frozenset[int] = frozenset()
        self._calls = 0
        self._scans = 0

    def read(self, wanted: Collection[int] = ()) -> bool:
        """Reads the processes `wanted`; returns True when this call was a scan, after which all processes are known."""
        is_scan = self._calls % SCAN_EVERY == 0
        self._calls += 1
        if not is_scan:
            self._read_each(wanted)
            return False
        pids = set(list_pids(self._proc))
        self._entries = {pid: entry for pid, entry in self._entries.items() if pid in pids}
        self._read_each(self._due(pids - self._ignored, frozenset(wanted)))
        self._ignored = frozenset(pids - self._entries.keys())
        self._check_for_torch()
        self._scans += 1
        return True

    def _due(self, pids: Collection[int], wanted: Collection[int]) -> list[int]:
        # A pid is read at every scan if it is wanted, new, or young; else when its pid modulo SHARES has its turn. A
        # host with thousands of processes then costs a fifth per scan, and no process is older than SHARES scans.
        turn, known = self._scans % SHARES, self._entries
        return [
            pid for pid in pids if pid in wanted or pid % SHARES == turn or pid not in known or not known[pid].settled
        ]

    @property
    def processes(self) -> Mapping[int, HostProcess]:
        return {pid: entry.process for pid, entry in self._entries.items()}

    def load(self, pid: int) -> ProcessLoad | None:
        """The load of a process at its last reading; None for a process that is not in the table."""
        entry = self._entries.get(pid)
        return None if entry is None else entry.load

    def _read_each(self, pids: Collection[int]) -> None:
        for pid in pids:
            stat = read_stat(pid, self._proc)
            if stat is None or not stat.is_running or KERNEL_THREADS in (pid, stat.parent):
                self._entries.pop(pid, None)
            else:
                self._update(stat)

    def _update(self, stat: ProcessStat) -> None:
        entry, now_s = self._entries.get(stat.pid), self._clock()
        if entry is None or entry.process.start_ticks != stat.start_ticks:
            self._add(stat, now_s)
            return
        if now_s > entry.read_s:
            cpu_pct = max(0.0, 100 * (stat.cpu_s - entry.cpu_s) / (now_s - entry.read_s))
            entry.load, entry.cpu_s, entry.read_s = ProcessLoad(cpu_pct, stat.rss_bytes), stat.cpu_s, now_s
        if not entry.settled or _has_changed(entry.process, stat):
            entry.settled = True
            process = self._identify(stat, entry.process.torch)
            if process.command != entry.process.command:
                entry.torch_checks = 0
            entry.process = process

    def _add(self, stat: ProcessStat, now_s: float) -> None:
        process = self._identify(stat)
        settled = process.started_s is None or self._wall_clock() - process.started_s > YOUNG_S
        self._entries[stat.pid] = _TableEntry(process, stat.cpu_s, now_s, ProcessLoad(None, stat.rss_bytes), settled)

    def _identify(self, stat: ProcessStat, torch: bool | None = None) -> HostProcess:
        process = HostProcess(stat.pid, stat.parent, stat.group, stat.session, stat.comm, stat.start_ticks, torch=torch)
        identity = self._identity(stat.pid)
        if identity is None:
            return process
        return replace(process, user=identity.user, command=identity.command, started_s=identity.started_s)

    def _check_for_torch(self) -> None:
        now_s = self._wall_clock()
        for entry in self._entries.values():
            process = entry.process
            if entry.torch_checks == len(TORCH_AGES_S) or process.torch:
                continue
            if not is_python(process.command):
                entry.torch_checks = len(TORCH_AGES_S)  # until it executes another program
            else:
                age_s = now_s - (process.started_s or 0.0)
                due = sum(age_s >= check_at_s for check_at_s in TORCH_AGES_S)
                if due > entry.torch_checks:
                    entry.torch_checks = due
                    entry.process = replace(process, torch=has_torch(f"{self._proc}/{process.pid}/maps"))


def _has_changed(before: HostProcess, stat: ProcessStat) -> bool:
    """True when the process has executed another program, or has moved to another parent, group or session."""
    return (before.comm, before.parent, before.group, before.session) != (
        stat.comm,
        stat.parent,
        stat.group,
        stat.session,
    )


def has_torch(maps: str) -> bool | None:
    """True when a process has loaded torch's library; None where this user may not look.

    Reads /proc/PID/maps: psutil's `memory_maps` reads smaps, for which the kernel walks every page.
    """
    try:
        with open(maps, "rb") as file:  # noqa: PTH123
            return b"/libtorch" in file.read()
    except OSError:
        return None


RANK_LAUNCHERS = frozenset(
    {"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun", "srun", "slurmstepd", "runai"}
)
"""Programs that start the ranks of a training, each in a session of its own (torch's elastic agent, Slurm)."""
RANK_LAUNCHER_MODULES = ("torch.distributed.", "accelerate.commands.", "deepspeed.launcher.", "tuner_tui.runs.")
TRAINING_TOOLS = frozenset({"torchrun", "accelerate", "deepspeed", "trl", "llamafactory-cli", "axolotl", "tune"})
TRAINING_COMMS = frozenset({"pt_main_thread", "pt_data_worker"})
"""The names that torch gives its main thread and its loader workers."""
TRAINING_WORDS = ("train", "finetune", "fine_tune", "fine-tune", "sft", "pretrain")
"""Parts of script names that suggest a training; used only where the loaded libraries cannot be read."""
INIT_PID = 1


@dataclass(frozen=True, slots=True)
class JobProcess:
    """A process of a job and its role in it."""

    process: HostProcess
    role: Role


@dataclass(frozen=True, slots=True)
class JobTree:
    """One job: its topmost process, the process by which it was found, and its members, parents before children."""

    root: int
    seed: int
    members: tuple[JobProcess, ...]

    @property
    def lead(self) -> HostProcess:
        """The process that represents the job: its first trainer, else the one by which it was found."""
        mains = [member.process for member in self.members if member.role is Role.MAIN]
        found = [member.process for member in self.members if member.process.pid == self.seed]
        return (mains or found)[0]


def find_jobs(
    processes: Mapping[int, HostProcess], seeds: Iterable[int], launched: Iterable[int] = ()
) -> tuple[JobTree, ...]:
    """The jobs of the processes `seeds`, oldest first; a seed that is not in the table is skipped.

    From each seed the way goes up as long as `is_same_job` holds; processes in `launched` are always topmost. Parts of
    a job whose common parent has died are joined by their process group.
    """
    tops = frozenset(launched)
    roots: dict[int, dict[int, int]] = {}
    for seed in (seed for seed in seeds if seed in processes):
        # Ranks whose launcher died have no common ancestor but init. They kept the process group of their command
        # line, so parts with one group are one job; a process that this program launched is a job by its pid.
        root = processes[find_root(processes, seed, tops)]
        group = root.pid if root.pid in tops or root.group <= INIT_PID else root.group
        roots.setdefault(group, {}).setdefault(root.pid, seed)
    children = children_by_parent(processes)
    trees = [build_tree(processes, children, found, tops) for found in roots.values()]
    return tuple(sorted(trees, key=lambda job: (processes[job.root].start_ticks, job.root)))


def find_root(processes: Mapping[int, HostProcess], pid: int, tops: frozenset[int] = frozenset()) -> int:
    """The pid of the topmost process of the job of `pid`."""
    seen = {pid}
    while pid not in tops:
        process = processes[pid]
        parent = processes.get(process.parent)
        if parent is None or parent.pid in seen or not is_same_job(process, parent):
            break
        pid = parent.pid
        seen.add(pid)
    return pid


def is_same_job(process: HostProcess, parent: HostProcess) -> bool:
    """True when a process belongs to its parent's job.

    A shell puts each command line into a process group of its own, so the same group means the same command line.
    Launchers start ranks in further groups, and multiprocessing may start workers in new sessions. Init adopts
    everything, so being its child means nothing.
    """
    if parent.pid <= INIT_PID:
        return False
    if process.group == parent.group or is_rank_launcher(parent.command, parent.comm):
        return True
    return is_python(parent.command) and (process.command == parent.command or is_spawned(process.command))


def build_tree(
    processes: Mapping[int, HostProcess],
    children: Mapping[int, list[int]],
    roots: Mapping[int, int],
    tops: frozenset[int],
) -> JobTree:
    """The job below the pids of `roots`, which maps each topmost pid to the seed that led to it.

    Processes in `tops` below it are jobs of their own.
    """
    members: list[JobProcess] = []
    oldest_first = sorted(roots, key=lambda root: (processes[root].start_ticks, root))
    pending: list[tuple[int, ClassifiedProcess | None]] = [(root, None) for root in reversed(oldest_first)]
    seen: set[int] = set()
    while pending:
        pid, parent = pending.pop()
        if pid in seen:
            continue
        seen.add(pid)
        process = processes[pid]
        role = role_of(process.command, process.comm, parent)
        classified = ClassifiedProcess(process.command, process.comm, role)
        members.append(JobProcess(process, role))
        below = [child for child in children.get(pid, ()) if child not in tops]
        pending += [(child, classified) for child in reversed(below)]
    return JobTree(oldest_first[0], roots[oldest_first[0]], tuple(members))


def children_by_parent(processes: Mapping[int, HostProcess]) -> dict[int, list[int]]:
    """Each parent's children, oldest first."""
    children: dict[int, list[int]] = {}
    for process in sorted(processes.values(), key=lambda process: (process.start_ticks, process.pid)):
        children.setdefault(process.parent, []).append(process.pid)
    return children


def find_trainings(processes: Mapping[int, HostProcess]) -> tuple[int, ...]:
    """The pids of processes that look like trainings, for machines whose driver reports no processes."""
    return tuple(pid for pid, process in processes.items() if looks_like_training(process))


def looks_like_training(process: HostProcess) -> bool:
    """True for a Python that has loaded torch, a training tool, or a script whose name suggests a training."""
    if process.torch or process.comm in TRAINING_COMMS:
        return True
    if not is_python(process.command):
        return False
    script = script_name(process.command)
    if script in TRAINING_TOOLS or any(word.startswith(RANK_LAUNCHER_MODULES[:3]) for word in process.command[1:3]):
        return True
    return process.torch is None and any(word in script.lower() for word in TRAINING_WORDS)


def is_rank_launcher(command: tuple[str, ...], comm: str) -> bool:
    """True when the program starts the ranks of a training."""
    if comm in RANK_LAUNCHERS:
        return True
    names = {program_name(word) for word in command[:2]}
    return bool(names & RANK_LAUNCHERS) or any(word.startswith(RANK_LAUNCHER_MODULES) for word in command[1:4])


def is_spawned(command: tuple[str, ...]) -> bool:
    """True when multiprocessing started it: by spawn, by forkserver, or to track resources."""
    return any(word.startswith("from multiprocessing.") for word in command[1:5])


def script_name(command: tuple[str, ...]) -> str:
    """The name of the script or module in a Python command line; empty without one."""
    words = [word for word in command[1:] if word == "-m" or not word.startswith("-")]
    if not words:
        return ""
    return words[1] if words[0] == "-m" and len(words) > 1 else program_name(words[0])
