"""Checks before a training starts: the machine, the interpreter and the settings, each with advice."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.findings.rows import finding
from tuner_tui.advice.recommend.recommendation import SMALL_SHM_BYTES
from tuner_tui.advice.recommend.target import describe_gpus, occupied_gpus, select_gpus
from tuner_tui.advice.thresholds import DISK_FREE_BYTES
from tuner_tui.core.files import read_data_file
from tuner_tui.core.units import GIB, format_size
from tuner_tui.hardware.environment import visible_gpus
from tuner_tui.hardware.interpreter import Interpreter, find_incompatibilities
from tuner_tui.hardware.inventory import GpuProblemKind, Inventory
from tuner_tui.memory.fixed_memory import OFFLOAD_BUFFERS, offloaded_bytes
from tuner_tui.memory.job_task import modelled_job
from tuner_tui.memory.known_shapes import known_shape
from tuner_tui.settings.distributed import best_kind, gpus_of_job, is_same_kind, process_count, state_sharding
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.model import Settings, format_value
from tuner_tui.settings.rules import find_problems

CheckState = Literal["good", "warning", "wrong"]
REQUIREMENTS = Path(__file__).with_name("requirements.yaml")
MIN_RAM_BYTES = 4 * GIB
REQUIRED_PACKAGES = ("torch", "transformers", "accelerate")
NO_GPU_KINDS = (GpuProblemKind.NO_LIBRARY, GpuProblemKind.NO_DRIVER, GpuProblemKind.NO_GPU)
"""Not an error: such a machine trains on its CPU."""


class PreflightCheck(Struct, frozen=True):
    """One check and its result. `wrong` means that the training fails or differs from what was requested."""

    name: str
    state: CheckState
    sentence: str
    advice: str = ""


def preflight_checks(
    inventory: Inventory,
    interpreter: Interpreter,
    settings: Settings,
    job: BuiltinJob | CommandJob,
    unknown: Collection[str] = (),
) -> tuple[PreflightCheck, ...]:
    """All checks, the most important first; of settings that are `unknown` nothing is said."""
    return (
        *interpreter_checks(interpreter, job),
        *gpu_checks(inventory, interpreter),
        *host_checks(inventory),
        *offload_checks(inventory, settings, job),
        *settings_checks(inventory, interpreter, settings, job, unknown),
    )


def preflight_check(row: str, state: CheckState | None = None, /, **values: object) -> PreflightCheck:
    """The check that a row of `requirements.yaml` words; good rows have no advice."""
    text = read_data_file(REQUIREMENTS)["checks"][row]
    say, advice = (text.get(part, "").format_map(values) for part in ("say", "advice"))
    state = state or text.get("state", "wrong")
    return PreflightCheck(text["name"], state, say, "" if state == "good" else advice)


def interpreter_checks(interpreter: Interpreter, job: BuiltinJob | CommandJob) -> Iterator[PreflightCheck]:
    """Checks the training interpreter and the packages it needs."""
    has, missing = interpreter.packages, missing_packages(interpreter, job)
    if interpreter.problem is not None:
        yield PreflightCheck("Python", "wrong", interpreter.problem)
    elif missing:
        names = {"names": " and no ".join(missing), "packages": " ".join(missing)}
        yield preflight_check("no packages", python=interpreter.path, **names)
    if not missing:
        versions = " · ".join(f"{name} {has[name]}" for name in REQUIRED_PACKAGES if name in has)
        yield preflight_check("python", python=interpreter.python_version, versions=versions)


def missing_packages(interpreter: Interpreter, job: BuiltinJob | CommandJob) -> tuple[str, ...]:
    """Packages that the job needs and the interpreter does not have."""
    needed = REQUIRED_PACKAGES if isinstance(job, BuiltinJob) else ("torch",)
    return tuple(name for name in needed if name not in interpreter.packages)


def gpu_checks(inventory: Inventory, interpreter: Interpreter) -> Iterator[PreflightCheck]:
    """Checks that the GPUs respond, which a training sees, whether others use them and torch runs on them."""
    for problem in inventory.problems:
        none = problem.kind in NO_GPU_KINDS
        yield PreflightCheck("GPU", "warning" if none else "wrong", problem.sentence, problem.advice)
    gpus = visible_gpus(inventory)
    if inventory.gpus and not gpus:
        yield preflight_check("hidden gpus", visible=inventory.cuda_visible_devices)
    elif gpus:
        kinds = dict.fromkeys(gpu.name for gpu in gpus)
        names = ", ".join(describe_gpus([gpu for gpu in gpus if gpu.name == kind]) for kind in kinds)
        hidden = f" ({len(inventory.gpus) - len(gpus)} hidden)" if len(gpus) < len(inventory.gpus) else ""
        yield preflight_check("gpus", names=names, hidden=hidden)
    if any(not is_same_kind(gpu, gpus[0]) for gpu in gpus):
        best = best_kind(gpus)
        yield preflight_check("unequal gpus", select=select_gpus(best), best=describe_gpus(best))
    if (occupied := occupied_gpus(gpus)) is not None:
        yield preflight_check("occupied", occupied=occupied)
    misfits = find_incompatibilities(inventory, interpreter)
    yield from (PreflightCheck("torch and GPU", "wrong", problem.sentence, problem.advice) for problem in misfits)
    if inventory.gpus and "torch" in interpreter.packages and not misfits:
        yield preflight_check("torch and gpus")


def host_checks(inventory: Inventory) -> Iterator[PreflightCheck]:
    """Checks the cores that affinity and cgroup leave, host memory, /dev/shm and the space for checkpoints."""
    cpu, memory, shm, disk = inventory.cpu, inventory.memory, inventory.shm, inventory.disk
    is_limited, are_few = cpu.usable_cores < cpu.logical_cores, cpu.usable_cores <= 2 and bool(inventory.gpus)
    usable = "1 core is" if cpu.usable_cores == 1 else f"{cpu.usable_cores} cores are"
    row = "limited cores" if is_limited else "few cores" if are_few else "cores"
    yield preflight_check(row, usable=usable, all=cpu.logical_cores)
    available = memory.usable_bytes if memory.available_bytes is None else memory.available_bytes
    free = min(memory.usable_bytes, available)
    yield preflight_check("memory", "good" if free >= MIN_RAM_BYTES else None, free=free / GIB)
    if shm is not None:
        yield preflight_check(
            "shm", "good" if shm.free_bytes >= SMALL_SHM_BYTES else None, free=format_size(shm.free_bytes)
        )
    if disk is not None:
        row = "disk" if disk.writable else "state folder"
        state: CheckState | None = "good" if disk.writable and disk.free_bytes >= DISK_FREE_BYTES else None
        yield preflight_check(row, state, free=disk.free_bytes / GIB, folder=disk.path)


def offload_checks(inventory: Inventory, settings: Settings, job: Job) -> Iterator[PreflightCheck]:
    """Whether the memory of the host can take what ZeRO or FSDP moves to it, by the size of the model."""
    modelled, sharding = modelled_job(job), state_sharding(job)
    shape = None if modelled is None else known_shape(modelled.model, modelled.task)
    if shape is None or sharding is None or sharding.on_disk or sharding.stage is None:
        return
    gpus = len(gpus_of_job(inventory, job))
    here = min(1.0, gpus / process_count(job, gpus)) if gpus else 1.0  # the other nodes keep the rest
    size, usable = offloaded_bytes(shape, settings, sharding) * here, inventory.memory.usable_bytes
    if not size:
        return
    most = size * (OFFLOAD_BUFFERS if sharding.by_deepspeed else 1.0)
    amount = format_size(size) + (f" (up to {format_size(most)} with buffers)" if most > size else "")
    state: CheckState = "good" if most <= usable else "warning" if size <= usable else "wrong"
    yield preflight_check("offload", state, by=sharding.name, amount=amount, usable=format_size(usable))


def settings_checks(
    inventory: Inventory,
    interpreter: Interpreter,
    settings: Settings,
    job: BuiltinJob | CommandJob,
    unknown: Collection[str],
) -> Iterator[PreflightCheck]:
    """Checks that the settings fit together and fit the machine."""
    gpus, cores_here = gpus_of_job(inventory, job), inventory.cpu.usable_cores
    problems = find_problems(settings, gpus=gpus, interpreter=interpreter, job=job, cores=cores_here)
    problems = tuple(problem for problem in problems if not {*unknown} & {*problem.fields})
    for problem in problems:
        right = " ".join(f"--set {name}={format_value(name, value)}" for name, value in problem.fix.items())
        state: CheckState = "wrong" if problem.severity == "error" else "warning"
        yield PreflightCheck("Settings", state, problem.sentence, right)
    if not problems:
        yield preflight_check("settings")


STORE_ELSEWHERE = Remedy("export TUNER_STATE_DIR=/another/folder", "Runs are then stored there.")
CHOOSE_INTERPRETER = Remedy(
    "choose another interpreter (e edits the job)", "Pass the Python of your training environment."
)


def environment_findings(
    inventory: Inventory | None, interpreter: Interpreter | None, job: BuiltinJob | CommandJob | None
) -> tuple[Finding, ...]:
    """One finding per missing or incompatible package, and for a disk that cannot hold a run.

    None of what is unknown: inventory or interpreter.
    """
    findings = list[Finding]()
    disk = None if inventory is None else inventory.disk
    if disk is not None and not disk.writable:
        findings.append(finding("state-folder", None, remedies=(STORE_ELSEWHERE,), folder=disk.path))
    elif disk is not None and disk.free_bytes < DISK_FREE_BYTES:
        free = f"{format_size(disk.free_bytes)} free in {disk.path}"
        findings.append(finding("disk-nearly-full", None, free, remedies=(STORE_ELSEWHERE,)))
    if inventory is None or interpreter is None:
        return tuple(findings)
    names = () if job is None else missing_packages(interpreter, job)
    if names and interpreter.python_version is not None:
        command = f"{interpreter.path} -m pip install {' '.join(names)}"
        remedies = (Remedy(command, "Without these packages the training cannot start."), CHOOSE_INTERPRETER)
        missing = " and no ".join(names)
        findings.append(finding("missing-package", None, remedies=remedies, python=interpreter.path, names=missing))
    elif interpreter.problem is not None:
        findings.append(finding("interpreter", None, remedies=(CHOOSE_INTERPRETER,), problem=interpreter.problem))
    for number, misfit in enumerate(find_incompatibilities(inventory, interpreter)):
        update = Remedy(misfit.advice, "No setting can make up for it.")
        cause, problem = f"misfit-{number}", misfit.sentence
        evidence = misfit.shown_by or interpreter.path
        findings.append(finding(cause, None, evidence, row="misfit", remedies=(update,), problem=problem))
    return tuple(findings)


def logout_checks(inventory: Inventory) -> Iterator[PreflightCheck]:
    """Whether the training outlives the session."""
    if inventory.logout_warning is not None:
        sentence, _, advice = inventory.logout_warning.partition(" To keep ")
        yield PreflightCheck("Logout", "warning", sentence, f"To keep {advice}" if advice else "")
