"""Groups a process table into jobs: a trainer with its loader workers, the ranks below one launcher. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tuner_tui.hardware.processes.process_roles import ClassifiedProcess, Role, is_python, program_name, role_of
from tuner_tui.hardware.processes.process_table import HostProcess

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
