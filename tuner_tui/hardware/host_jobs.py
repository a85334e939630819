"""Finds the jobs that the processes of the host form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from tuner_tui.core.child_guard import COMM as HELPER_COMM
from tuner_tui.hardware.process_table import HostProcess
from tuner_tui.hardware.processes import RANK_LAUNCHER_MODULES, Parent, Role, is_python, program_name, role_of

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
