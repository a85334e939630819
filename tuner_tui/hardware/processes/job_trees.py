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
"""What torch names its own threads and loader workers."""
TRAINING_WORDS = ("train", "finetune", "fine_tune", "fine-tune", "sft", "pretrain")
"""What people call a training script; told by the name only where the libraries it has loaded cannot be seen."""
INIT_PID = 1


@dataclass(frozen=True, slots=True)
class JobProcess:
    """A process of a job and what it does there."""

    process: HostProcess
    role: Role


@dataclass(frozen=True, slots=True)
class JobTree:
    """One job: the process it hangs on, the one it was found by, and all that belong to it, parents before children."""

    root: int
    seed: int
    members: tuple[JobProcess, ...]

    @property
    def lead(self) -> HostProcess:
        """The process that says what the job is: its first trainer, else the one it was found by."""
        mains = [member.process for member in self.members if member.role is Role.MAIN]
        found = [member.process for member in self.members if member.process.pid == self.seed]
        return (mains or found)[0]


def find_jobs(
    processes: Mapping[int, HostProcess], seeds: Iterable[int], launched: Iterable[int] = ()
) -> tuple[JobTree, ...]:
    """The jobs that the processes `seeds` belong to, oldest first; a seed that is not in the table has none.

    A job hangs on the topmost process that belongs to it: see `is_same_job`. Processes in `launched` are such
    tops whatever stands above them. What is left of a job whose parent died is held together by its process group.
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
    """The topmost process of the job that `pid` belongs to."""
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
    """Whether a process is of its parent's job: same command line of a shell, a launcher's rank, a worker.

    A shell gives each command line a process group of its own. Launchers start ranks in further ones; so does who runs
    multiprocessing in new sessions. Init starts everything, so being its child says nothing.
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
    """The processes below the keys of `roots` (its values found them) with their roles.

    Another launched training below is a job of its own.
    """
    members: list[JobProcess] = []
    tallest = sorted(roots, key=lambda root: (processes[root].start_ticks, root))
    waiting: list[tuple[int, ClassifiedProcess | None]] = [(root, None) for root in reversed(tallest)]
    seen: set[int] = set()
    while waiting:
        pid, parent = waiting.pop()
        if pid in seen:
            continue
        seen.add(pid)
        process = processes[pid]
        person = ClassifiedProcess(process.command, process.comm, role_of(process.command, process.comm, parent))
        members.append(JobProcess(process, person.role))
        below = [child for child in children.get(pid, ()) if child not in tops]
        waiting += [(child, person) for child in reversed(below)]
    return JobTree(tallest[0], roots[tallest[0]], tuple(members))


def children_by_parent(processes: Mapping[int, HostProcess]) -> dict[int, list[int]]:
    """Each parent's children, oldest first."""
    children: dict[int, list[int]] = {}
    for process in sorted(processes.values(), key=lambda process: (process.start_ticks, process.pid)):
        children.setdefault(process.parent, []).append(process.pid)
    return children


def find_trainings(processes: Mapping[int, HostProcess]) -> tuple[int, ...]:
    """The processes that look like trainings, for a box whose driver names none: torch loaded, or started as one."""
    return tuple(pid for pid, process in processes.items() if looks_like_training(process))


def looks_like_training(process: HostProcess) -> bool:
    """Whether this is a Python that has loaded torch, a training tool, or a script named like a training."""
    if process.torch or process.comm in TRAINING_COMMS:
        return True
    if not is_python(process.command):
        return False
    script = script_name(process.command)
    if script in TRAINING_TOOLS or any(word.startswith(RANK_LAUNCHER_MODULES[:3]) for word in process.command[1:3]):
        return True
    return process.torch is None and any(word in script.lower() for word in TRAINING_WORDS)


def is_rank_launcher(command: tuple[str, ...], comm: str) -> bool:
    """Whether it starts the ranks of a training."""
    if comm in RANK_LAUNCHERS:
        return True
    names = {program_name(word) for word in command[:2]}
    return bool(names & RANK_LAUNCHERS) or any(word.startswith(RANK_LAUNCHER_MODULES) for word in command[1:4])


def is_spawned(command: tuple[str, ...]) -> bool:
    """Whether multiprocessing started it: by spawn, forkserver, or to track resources."""
    return any(word.startswith("from multiprocessing.") for word in command[1:5])


def script_name(command: tuple[str, ...]) -> str:
    """The script's or module's name in a Python command line; empty without one."""
    words = [word for word in command[1:] if word == "-m" or not word.startswith("-")]
    if not words:
        return ""
    return words[1] if words[0] == "-m" and len(words) > 1 else program_name(words[0])
