"""Processes: names, owners and roles; the load of a training's own ones; all of the host, and the jobs they form."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import dropwhile
from pathlib import Path, PurePath

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.child_guard import COMM as HELPER_COMM
from tuner_tui.core.ownership import user_name
from tuner_tui.core.procfs import (
    PROC,
    TICKS_PER_S,
    ProcessStat,
    all_processes,
    children_by_parent,
    list_pids,
    read_command_line,
    read_proc_text,
    read_stat,
)
from tuner_tui.core.redaction import redact_argv
from tuner_tui.hardware.environment import sees_host_pids
from tuner_tui.hardware.inventory import GpuProcess
from tuner_tui.hardware.sample import ProcessSample

MAX_COMMAND_LENGTH, MAX_BRIEF_WORDS = 40, 8


def identify_gpu_processes(
    processes: tuple[GpuProcess, ...] | None, proc: Path = PROC
) -> tuple[GpuProcess, ...] | None:
    """The processes with a brief command and their owner.

    None in a container: the driver reports the host's pids there, which are other processes in our namespace.
    """
    if processes is None or not sees_host_pids(proc):
        return None
    return tuple(
        replace(process, command=brief_command(_command_words(process.pid, proc)), user=read_owner(process.pid, proc))
        for process in processes
    )


def with_command_line(process: GpuProcess, proc: Path = PROC) -> GpuProcess:
    """The process with its whole command line, secrets hidden, and its owner, as far as this user may read them."""
    words = redact_argv(_command_words(process.pid, proc))
    return replace(process, command=" ".join(words) or None, user=read_owner(process.pid, proc))


def brief_command(words: Sequence[str]) -> str | None:
    """The command as people write it: `python train.py`, `python -m ipykernel_launcher`; None without words."""
    if not words:
        return None
    words = redact_argv(words[:MAX_BRIEF_WORDS])
    name = PurePath(words[0]).name
    if name.startswith("python"):
        started = [word for word in words[1:] if word in ("-m", "-c") or not word.startswith("-")]
        shown = 2 if started[:1] == ["-m"] else 1  # the code after -c says little, and may be long
        name = " ".join(["python", *(PurePath(word).name for word in started[:shown])])
    return name[:MAX_COMMAND_LENGTH]


def read_owner(pid: int, proc: str | Path = PROC) -> str | None:
    """The owner's name, or the user id where it has no name; None when the process has ended."""
    try:
        owner = os.stat(f"{proc}/{pid}").st_uid  # noqa: PTH116
    except OSError:
        return None
    return user_name(owner)


def _command_words(pid: int, proc: Path) -> tuple[str, ...]:
    """The command line, or the kernel's name of the process where that is hidden; empty when it has ended."""
    if command := read_command_line(pid, proc):
        return command
    name = read_proc_text(proc / str(pid) / "comm").strip()
    return (name,) if name else ()


class Role(StrEnum):
    """What a process of the training does."""

    MAIN = "main"
    WORKER = "worker"
    OTHER = "other"


Parent = tuple[tuple[str, ...], Role]
"""The command line and the role of a parent."""

LOADER_WORKER = "pt_data_worker"
"""The name that torch gives its loader workers (torch/utils/data/_utils/worker.py)."""
LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed", "conda", "mamba", "tuner-tui", "ipython", "jupyter"})
RANK_LAUNCHER_MODULES = ("torch.distributed.", "accelerate.commands.", "deepspeed.launcher.", "tuner_tui.runs.")
LAUNCHER_MODULES = (*RANK_LAUNCHER_MODULES, "tuner_tui.cli")
SPAWN = "from multiprocessing.spawn import spawn_main"
FORKSERVER = "from multiprocessing.forkserver import main"
HELPERS = ("from multiprocessing.resource_tracker import", "torch/_inductor/compile_worker")


def role_of(command: tuple[str, ...], comm: str, parent: Parent | None) -> Role:
    """The role of a process, from its command line and its parent; `parent` is None for the launched command.

    The first Python below shells and launchers is the trainer. Its forks (same command line) and the children that
    multiprocessing spawns for it are loader workers; other programs it starts are not.
    """
    # torch names its workers in newer releases. For older ones, and for other libraries, the tree decides: workers are
    # forked (same command line as the trainer) or spawned (a command line of multiprocessing).
    if comm == LOADER_WORKER:
        return Role.WORKER
    line = " ".join(command)
    if FORKSERVER in line:
        # The fork server is a child of the trainer; the workers it forks keep its command line.
        return Role.WORKER if parent is not None and parent[0] == command else Role.OTHER
    if not is_python(command) or is_launcher(command) or any(helper in line for helper in HELPERS):
        return Role.OTHER
    if parent is None:
        return Role.MAIN
    above, role = parent
    if role is Role.MAIN:
        return Role.WORKER if command == above or SPAWN in line else Role.OTHER
    # Shells, launchers and tools like `uv run` start trainers; workers and a trainer's helpers do not.
    starts = role is Role.OTHER and not any(helper in " ".join(above) for helper in HELPERS)
    return Role.MAIN if starts else Role.OTHER


def is_python(command: Sequence[str]) -> bool:
    """True when the program is Python; for a script with a `#!` line too, as the kernel puts the interpreter first."""
    return bool(command) and program_name(command[0]).startswith("python")


def program_name(word: str) -> str:
    """The last part of a path. Called for hundreds of command lines at once, where pathlib costs five times as much."""
    return word.rpartition("/")[2]


def is_launcher(command: Sequence[str]) -> bool:
    """True when the command starts a trainer: torchrun, accelerate launch and the like."""
    words = list(dropwhile(lambda word: word.startswith("-") and word != "-m", command[1:]))
    if len(words) > 1 and words[0] == "-m":
        return words[1].startswith(LAUNCHER_MODULES)
    return bool(words) and program_name(words[0]) in LAUNCHERS


# Loads change each second, the set of processes rarely; to find it again, the whole tree is read.
RESCAN_EVERY = 3
QUEUE_TIME_ROLES = (Role.MAIN, Role.WORKER)
"""Roles whose wait for a core delays the training; launchers and data servers may wait."""
ROLE_ORDER = {role: order for order, role in enumerate(Role)}
RANK = re.compile(r"(?:^|\0)RANK=([0-9]{1,6})(?:\0|$)")
"""In the environment of each trainer that torchrun or accelerate started."""


class TrainingProcess(Struct, frozen=True):
    """A process of the training as of the last scan, with its rank in a distributed training."""

    pid: int
    command: tuple[str, ...]
    role: Role
    rank: int | None


class CpuReading(Struct, frozen=True):
    """CPU seconds of a process at `at_s`, and the seconds its main thread has waited in the run queue so far."""

    start_ticks: int
    cpu_s: float
    at_s: float
    queued_s: float | None = None


class ProcessSampler:
    """Samples the processes below given pids: their load at each call, their identity at every `RESCAN_EVERY`th.

    `clock` is monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float], proc: Path = PROC) -> None:
        self._clock = clock
        self._proc = proc
        self._roots: tuple[int, ...] = ()
        self._processes: tuple[TrainingProcess, ...] = ()
        self._readings: dict[int, CpuReading] = {}
        self._calls = 0

    def sample(self, roots: Sequence[int]) -> tuple[ProcessSample, ...]:
        """The processes `roots` and all below them, trainers first; `cpu_pct` is None for a new process."""
        if tuple(roots) != self._roots or self._calls % RESCAN_EVERY == 0:
            self._roots = tuple(roots)
            self._processes = find_training_processes(self._proc, self._roots) if roots else ()
        self._calls += 1
        before, self._readings = self._readings, {}
        samples = []
        for process in self._processes:
            pid, role = process.pid, process.role
            stat = read_stat(pid, self._proc)
            if stat is None or not stat.is_running:
                continue
            waits = role in QUEUE_TIME_ROLES
            queued_s = read_queued_s(self._proc, pid) if waits else None
            self._readings[pid] = now = CpuReading(stat.start_ticks, stat.cpu_s, self._clock(), queued_s)
            cpu_pct, queue_pct = usage_between(before.get(pid), now)
            state = stat.state if waits else None
            samples.append(ProcessSample(pid, role.value, cpu_pct, stat.rss_bytes, process.rank, queue_pct, state))
        return tuple(samples)


def usage_between(before: CpuReading | None, now: CpuReading) -> tuple[float | None, float | None]:
    """Percent of the time between two readings spent on a core, and waiting for one; None where unknown."""
    if before is None or before.start_ticks != now.start_ticks or now.at_s <= before.at_s:
        return None, None
    elapsed_s = now.at_s - before.at_s
    cpu_pct = 100 * (now.cpu_s - before.cpu_s) / elapsed_s
    if now.queued_s is None or before.queued_s is None:
        return cpu_pct, None
    return cpu_pct, min(100.0, max(0.0, 100 * (now.queued_s - before.queued_s) / elapsed_s))


def find_training_processes(proc: Path, roots: Sequence[int]) -> tuple[TrainingProcess, ...]:
    """The processes `roots` and all below them: trainers by rank, then workers, then others."""
    training: dict[int, TrainingProcess] = {}
    pending: list[tuple[int, TrainingProcess | None]] = [(root, None) for root in roots]
    # The kernel's list of the children of each thread would cost more: a trainer has a hundred threads.
    children = children_by_parent(all_processes(proc))
    while pending:
        pid, parent = pending.pop()
        stat = read_stat(pid, proc)
        if stat is not None and stat.is_running and pid not in training:
            command = read_command_line(pid, proc)
            role = role_of(command, stat.comm, None if parent is None else (parent.command, parent.role))
            rank = None if parent is None else parent.rank  # a worker has the rank of its trainer
            if role is Role.MAIN:
                match = RANK.search(read_proc_text(proc / str(pid) / "environ"))
                rank = None if match is None else int(match[1])
            process = training[pid] = TrainingProcess(pid, command, role, rank)
            pending += [(child.pid, process) for child in children.get(pid, ())]
    return tuple(
        sorted(training.values(), key=lambda process: (ROLE_ORDER[process.role], process.rank or 0, process.pid))
    )


def read_queued_s(proc: Path, pid: int) -> float | None:
    """Seconds the process's main thread has waited for a core (Documentation/scheduler/sched-stats.rst).

    None where the kernel does not count them: all figures of the file are 0 then.
    """
    fields = read_proc_text(proc / str(pid) / "schedstat").split()
    counted = len(fields) == 3 and all(field.isdigit() for field in fields) and int(fields[0]) > 0
    return int(fields[1]) / 1e9 if counted else None


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


class HostProcess(Struct, frozen=True):
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


class ProcessLoad(Struct, frozen=True):
    """Percent of one core since the previous reading (None at the first one), and resident bytes."""

    cpu_pct: float | None
    rss_bytes: int


class _TableEntry(Struct):
    """The last reading of a process; `read_s` is monotonic, `settled` is False while it may still change program."""

    process: HostProcess
    cpu_s: float
    read_s: float
    load: ProcessLoad
    settled: bool
    torch_checks: int = 0


class ProcessTable:
    """The host's processes, without kernel threads. `read` is for one thread at a time.

    Identities are read once per process, loads again and again. The wanted processes are read at each call; every
    `SCAN_EVERY`th call is a scan, which finds new and ended processes and reads the new ones, the young ones, and the
    others in turn.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        *,
        proc: Path = PROC,
    ) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._proc = str(proc)
        boot_s = read_proc_text(proc / "stat").partition("btime ")[2].split(None, 1)[:1]
        self._boot_s = float(boot_s[0]) if boot_s else None  # seconds since the epoch
        self._entries: dict[int, _TableEntry] = {}
        self._ignored: frozenset[int] = frozenset()
        self._calls = 0

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
        return True

    def _due(self, pids: Collection[int], wanted: Collection[int]) -> list[int]:
        # A pid is read at every scan if it is wanted, new, or young; else when its pid modulo SHARES has its turn. A
        # host with thousands of processes then costs a fifth per scan, and no process is older than SHARES scans.
        turn = self._calls // SCAN_EVERY % SHARES
        settled = {pid for pid, entry in self._entries.items() if entry.settled}
        return [pid for pid in pids if pid in wanted or pid % SHARES == turn or pid not in settled]

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
        before = entry.process
        # It has executed another program, or has moved to another parent, group or session.
        now = (stat.comm, stat.parent, stat.group, stat.session)
        if not entry.settled or (before.comm, before.parent, before.group, before.session) != now:
            entry.settled = True
            process = self._identify(stat, before.torch)
            if process.command != before.command:
                entry.torch_checks = 0
            entry.process = process

    def _add(self, stat: ProcessStat, now_s: float) -> None:
        process = self._identify(stat)
        settled = process.started_s is None or self._wall_clock() - process.started_s > YOUNG_S
        self._entries[stat.pid] = _TableEntry(process, stat.cpu_s, now_s, ProcessLoad(None, stat.rss_bytes), settled)

    def _identify(self, stat: ProcessStat, torch: bool | None = None) -> HostProcess:
        started_s = None if self._boot_s is None else self._boot_s + stat.start_ticks / TICKS_PER_S
        user, command = read_owner(stat.pid, self._proc), read_command_line(stat.pid, self._proc)
        ids = (stat.pid, stat.parent, stat.group, stat.session)
        return HostProcess(*ids, stat.comm, stat.start_ticks, user, command, started_s, torch)

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
TRAINING_TOOLS = frozenset({"torchrun", "accelerate", "deepspeed", "trl", "llamafactory-cli", "axolotl", "tune"})
TRAINING_COMMS = frozenset({"pt_main_thread", "pt_data_worker"})
"""The names that torch gives its main thread and its loader workers."""
TRAINING_WORDS = ("train", "finetune", "fine_tune", "fine-tune", "sft", "pretrain")
"""Parts of script names that suggest a training; used only where the loaded libraries cannot be read."""
INIT_PID = 1


class JobProcess(Struct, frozen=True):
    """A process of a job and its role in it."""

    process: HostProcess
    role: Role


class JobTree(Struct, frozen=True):
    """One job: its topmost process, the process by which it was found, and its members, parents before children."""

    root: int
    seed: int
    members: tuple[JobProcess, ...]

    @property
    def lead(self) -> HostProcess:
        """The process that represents the job: its first trainer, else the one by which it was found."""
        mains = [member.process for member in self.members if member.role is Role.MAIN]
        seeds = [member.process for member in self.members if member.process.pid == self.seed]
        return (mains or seeds)[0]


def find_jobs(
    processes: Mapping[int, HostProcess], seeds: Iterable[int], launched: Iterable[int] = ()
) -> tuple[JobTree, ...]:
    """The jobs of the processes `seeds`, oldest first; a seed that is not in the table is skipped.

    What runs below a helper of this program, such as a probe of an interpreter, is no job.

    From each seed the way goes up as long as `is_same_job` holds; processes in `launched` are always topmost. Parts of
    a job whose common parent has died are joined by their process group.
    """
    tops = frozenset(launched)
    roots: dict[int, dict[int, int]] = {}
    for seed in seeds:
        if seed not in processes or any(above.comm == HELPER_COMM for above in _with_ancestors(processes, seed)):
            continue
        # Ranks whose launcher died have no common ancestor but init. They kept the process group of their command
        # line, so parts with one group are one job; a process that this program launched is a job by its pid.
        root = find_root(processes, seed, tops)
        group = root.pid if root.pid in tops or root.group <= INIT_PID else root.group
        roots.setdefault(group, {}).setdefault(root.pid, seed)
    children: dict[int, list[int]] = {}
    for process in sorted(processes.values(), key=lambda process: (process.start_ticks, process.pid)):
        children.setdefault(process.parent, []).append(process.pid)
    trees = [build_tree(processes, children, root, tops) for root in roots.values()]
    return tuple(sorted(trees, key=lambda job: (processes[job.root].start_ticks, job.root)))


def _with_ancestors(processes: Mapping[int, HostProcess], pid: int) -> Iterator[HostProcess]:
    seen: set[int] = set()
    while pid in processes and pid not in seen:
        seen.add(pid)
        yield processes[pid]
        pid = processes[pid].parent


def find_root(processes: Mapping[int, HostProcess], pid: int, tops: frozenset[int]) -> HostProcess:
    """The topmost process of the job of `pid`."""
    root = processes[pid]
    for process in _with_ancestors(processes, pid):
        if process is not root and (root.pid in tops or not is_same_job(root, process)):
            break
        root = process
    return root


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
    # multiprocessing starts processes by spawn, by forkserver, or to track resources.
    spawned = any(word.startswith("from multiprocessing.") for word in process.command[1:5])
    return is_python(parent.command) and (process.command == parent.command or spawned)


def build_tree(
    processes: Mapping[int, HostProcess],
    children: Mapping[int, list[int]],
    roots: Mapping[int, int],
    tops: frozenset[int],
) -> JobTree:
    """The job below the pids of `roots`, which maps each topmost pid to the seed that led to it.

    `children` are oldest first. Processes in `tops` below it are jobs of their own.
    """
    members: list[JobProcess] = []
    oldest_first = sorted(roots, key=lambda root: (processes[root].start_ticks, root))
    pending: list[tuple[int, Parent | None]] = [(root, None) for root in reversed(oldest_first)]
    seen: set[int] = set()
    while pending:
        pid, parent = pending.pop()
        if pid in seen:
            continue
        seen.add(pid)
        process = processes[pid]
        role = role_of(process.command, process.comm, parent)
        members.append(JobProcess(process, role))
        below = [child for child in children.get(pid, ()) if child not in tops]
        pending += [(child, (process.command, role)) for child in reversed(below)]
    return JobTree(oldest_first[0], roots[oldest_first[0]], tuple(members))


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


def script_name(command: tuple[str, ...]) -> str:
    """The name of the script or module in a Python command line; empty without one."""
    words = [word for word in command[1:] if word == "-m" or not word.startswith("-")]
    if not words:
        return ""
    return words[1] if words[0] == "-m" and len(words) > 1 else program_name(words[0])
