"""The machine: GPUs and their abilities, processor, memory, disk and the Python that trains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import UNKNOWN, format_size
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import BAD, GOOD, WARN, Line, TextSpan, labelled_rows, line, shorten, wrapped_rows

if TYPE_CHECKING:
    from tuner_tui.hardware.interpreter import Interpreter
    from tuner_tui.hardware.inventory import Ability, Gpu, Inventory


ROOM_FOR_REASONS = 60
MARKS = {None: "?", True: GOOD, False: BAD}
MOST_IN_USE_ROWS = 2


def hardware_rows(inventory: Inventory | None, interpreter: Interpreter | None, width: int) -> list[Line]:
    """Return all that is known of the machine, problems first."""
    if inventory is None:
        return [line(TextSpan("Reading the hardware …", "dim"))]
    rows = _problems(inventory, interpreter, width)
    for alike in group_equal_gpus(inventory.gpus):
        rows += _gpu(alike, width)
    if inventory.gpus:
        driver = f"{inventory.driver_version or UNKNOWN}  CUDA {inventory.cuda_version or UNKNOWN}"
        rows += [*labelled_rows("driver", driver, width), *_visible(inventory, width)]
    return rows + _host(inventory, width) + _interpreter(interpreter, width)


def hardware_summary(inventory: Inventory, interpreter: Interpreter | None = None) -> str:
    """Return the machine in one line, such as `2 × H100 80GB HBM3 · 32 cores · 256 GiB RAM`.

    It says which GPUs the torch of the interpreter does not use.
    """
    from tuner_tui.hardware.interpreter import unused_gpus  # not needed for the first frame

    groups = [(len(group), group[0].name.removeprefix("NVIDIA ")) for group in group_equal_gpus(inventory.gpus)]
    gpus = [f"{count} × {name}" if count > 1 else name for count, name in groups]
    note = " (CPU-only torch)" * bool(unused_gpus(inventory, interpreter))
    cpu, memory = inventory.cpu, inventory.memory
    cores, usable_bytes = f"{cpu.usable_cores}", memory.usable_bytes
    ram = f.whole_gib(usable_bytes)
    # Gauges show the whole machine: where a container may use less, the line says of how much.
    cores += f" of {cpu.logical_cores}" if cpu.usable_cores < cpu.logical_cores else ""
    ram += f" of {f.whole_gib(memory.total_bytes)}" if usable_bytes < memory.total_bytes else ""
    return " · ".join([f"{' · '.join(gpus) or 'no GPU'}{note}", f"{cores} cores", f"{ram} GiB RAM"])


def group_equal_gpus(gpus: Iterable[Gpu]) -> list[list[Gpu]]:
    """Group GPUs of the same kind, so that eight equal ones take the room of one."""
    groups: dict[tuple[object, ...], list[Gpu]] = {}
    for gpu in gpus:
        key = (gpu.name, gpu.capability, gpu.memory_total_bytes, gpu.power_limit_w, gpu.mig, gpu.abilities)
        groups.setdefault(key, []).append(gpu)
    return list(groups.values())


def _problems(inventory: Inventory, interpreter: Interpreter | None, width: int) -> list[Line]:
    """Return what is wrong, each with its advice where it has one."""
    from tuner_tui.hardware.interpreter import find_incompatibilities  # not needed for the first frame

    problems = [(problem.sentence, problem.advice) for problem in inventory.problems]
    if interpreter is not None:
        problems += [(problem.sentence, problem.advice) for problem in find_incompatibilities(inventory, interpreter)]
        problems += [(interpreter.problem, "")] if interpreter.problem else []
    problems += [(inventory.logout_warning, "")] if inventory.logout_warning else []
    rows = []
    for sentence, advice in problems:
        rows += wrapped_rows(sentence, width, "warn", f"{WARN} ") + wrapped_rows(advice, width, mark="  ")
    return rows


def _visible(inventory: Inventory, width: int) -> list[Line]:
    """Return which GPUs CUDA_VISIBLE_DEVICES leaves to a training, if it is set."""
    if inventory.cuda_visible_devices is None:
        return []
    from tuner_tui.hardware.environment import visible_indexes

    gpus = ", ".join(map(str, visible_indexes(inventory.gpus, inventory.cuda_visible_devices)))
    used = f"runs started here use {f'GPU {gpus}' if gpus else 'no GPU'}"
    return labelled_rows("visible", f"CUDA_VISIBLE_DEVICES={inventory.cuda_visible_devices}: {used}", width)


def _gpu(gpus: Sequence[Gpu], width: int) -> list[Line]:
    first = gpus[0]
    numbers = str(first.index) if len(gpus) == 1 else f"{len(gpus)} ×"
    facts = [
        f"{f.gib(first.memory_total_bytes)} GiB",
        f"compute capability {UNKNOWN if first.capability is None else '{}.{}'.format(*first.capability)}",
        first.architecture or "",
        f"{f.integer(first.power_limit_w)} W",
        "MIG on" if first.mig else "",
    ]
    head = line(TextSpan(f"{numbers} ", "strong"), shorten(first.name, width - len(numbers) - 1))
    about = line("  ", shorten("  ".join(fact for fact in facts if fact), width - 2))
    used = [gpu for gpu in gpus if gpu.processes]
    groups = [used] if len(used) > MOST_IN_USE_ROWS else [[gpu] for gpu in used]
    in_use = (line("  ", shorten(_held(group), max(0, width - 2))) for group in groups)
    return [head, about, *_abilities(first.abilities, width), *in_use]


def _abilities(abilities: Sequence[Ability], width: int) -> list[Line]:
    """Return the abilities of a GPU, with reasons where there is room."""
    if width >= ROOM_FOR_REASONS:
        named = ((f"  {MARKS[ability.able]} {ability.name}", ability.reason) for ability in abilities)
        return [row for name, reason in named for row in labelled_rows(name, reason, width, labels=11)]
    marks = "  ".join(f"{MARKS[ability.able]}{ability.name}" for ability in abilities)
    return [line(f"  {text}") for text in wrap_text(marks, max(8, width - 2))]


def _held(gpus: Sequence[Gpu]) -> str:
    processes = (process for gpu in gpus for process in gpu.processes)
    names = dict.fromkeys(
        f"{process.command or 'a process'} ({', '.join(filter(None, (process.user, f'pid {process.pid}')))})"
        for process in processes
    )
    used = [gpu.memory_used_bytes for gpu in gpus if gpu.memory_used_bytes is not None]
    whose = f"GPU {gpus[0].index}" if len(gpus) == 1 else f"{len(gpus)} GPUs"
    return f"{whose}: {f.gib(sum(used) if used else None)} GiB used by {', '.join(names)}"


def _host(inventory: Inventory, width: int) -> list[Line]:
    cpu, memory = inventory.cpu, inventory.memory
    limits = [f"affinity {cpu.affinity_cores}"] if cpu.affinity_cores < cpu.logical_cores else []
    limits += [f"cgroup quota {cpu.quota_cores:g}"] if cpu.quota_cores is not None else []
    cores = f"{cpu.usable_cores} usable of {cpu.logical_cores} ({f.count(cpu.physical_cores)} physical)"
    ram = [f"{format_size(memory.usable_bytes)} usable of {format_size(memory.total_bytes)}"]
    ram += [f"{format_size(memory.available_bytes)} available"] if memory.available_bytes is not None else []
    ram += [f"swap {format_size(memory.swap_total_bytes)}" if memory.swap_total_bytes else "no swap"]
    facts = {"CPU": cpu.model or UNKNOWN, "cores": " · ".join([cores, *limits]), "RAM": " · ".join(ram)}
    if inventory.shm is not None:
        facts["shm"] = f"{format_size(inventory.shm.free_bytes)} free"
    if inventory.disk is not None:
        facts["disk"] = f"{format_size(inventory.disk.free_bytes)} free at {inventory.disk.path}"
    return [row for label, text in facts.items() for row in labelled_rows(label, text, width)]


def _interpreter(interpreter: Interpreter | None, width: int) -> list[Line]:
    if interpreter is None:
        return labelled_rows("Python", "reading its packages …", width)
    python = labelled_rows("Python", f"{interpreter.python_version or UNKNOWN}  {interpreter.path}", width)
    versions = "  ".join(f"{name} {version}" for name, version in interpreter.packages.items() if version)
    return python + (labelled_rows("packages", versions, width) if versions else [])
