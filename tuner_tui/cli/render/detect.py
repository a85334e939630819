"""The text of `tuner-tui detect`: aligned columns, fixed units, no colour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import UNKNOWN, format_gib
from tuner_tui.hardware.environment import sees_host_pids, visible_gpus
from tuner_tui.hardware.interpreter.compatibility import Incompatibility
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.hardware.inventory import Cpu, Gpu, GpuProblem, HostMemory, Inventory, Space

LABEL = 13
WIDTH = 100


def report(inventory: Inventory, interpreter: Interpreter, wrong: Sequence[Incompatibility]) -> list[str]:
    """The whole report, line by line."""
    sections = [
        box_lines(inventory),
        gpu_lines(inventory),
        *ability_sections(inventory.gpus),
        process_lines(inventory.gpus),
        python_lines(interpreter),
        problem_lines([*inventory.problems, *wrong], interpreter.problem),
        [] if inventory.logout_warning is None else hanging("! ", inventory.logout_warning),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section).split("\n")


def box_lines(inventory: Inventory) -> list[str]:
    """Host, processor, memory and space."""
    place = [name for name in (inventory.container, inventory.multiplexer) if name]
    return [
        labelled("Host", " · ".join([inventory.hostname, *place])),
        *cpu_lines(inventory.cpu),
        *memory_lines(inventory.memory),
        *space_lines("/dev/shm", inventory.shm),  # noqa: S108  a label
        *space_lines("Disk", inventory.disk, at=True),
    ]


def cpu_lines(cpu: Cpu) -> list[str]:
    """The processor, and why fewer cores may be used than it has."""
    physical = UNKNOWN if cpu.physical_cores is None else cpu.physical_cores
    limits = []
    if cpu.affinity_cores < cpu.logical_cores:
        limits.append(f"affinity {cpu.affinity_cores}")
    if cpu.quota_cores is not None:
        limits.append(f"cgroup quota {cpu.quota_cores:g}")
    usable = f"{cpu.usable_cores} usable" + (f" ({', '.join(limits)})" if limits else "")
    return [
        labelled("CPU", cpu.model or "unknown processor"),
        labelled("Cores", f"{usable} · {cpu.logical_cores} logical · {physical} physical"),
    ]


def memory_lines(memory: HostMemory) -> list[str]:
    """RAM and swap."""
    parts = [format_gib(memory.total_bytes)]
    if memory.available_bytes is not None:
        parts.append(f"{format_gib(memory.available_bytes)} available")
    if memory.limit_bytes is not None:
        parts.append(f"cgroup limit {format_gib(memory.limit_bytes)}")
    swap = "none" if memory.swap_total_bytes == 0 else format_gib(memory.swap_total_bytes)
    return [labelled("RAM", " · ".join(parts)), labelled("Swap", swap)]


def space_lines(label: str, space: Space | None, at: bool = False) -> list[str]:
    """A file system's free space."""
    if space is None:
        return []
    free = f"{format_gib(space.free_bytes)} free of {format_gib(space.total_bytes)}"
    return [labelled(label, f"{free}  {space.path}" if at else free)]


def gpu_lines(inventory: Inventory) -> list[str]:
    """The cards as a table under the driver's versions."""
    if not inventory.gpus:
        return [labelled("GPUs", "none that can be used")]
    driver = f"driver {inventory.driver_version or UNKNOWN} · CUDA {inventory.cuda_version or UNKNOWN}"
    rows: list[tuple[str, ...]] = [
        ("", "name", "memory", "reserved", "in use", "power", "SM clock", "mem clock", "MIG")
    ]
    rows += [gpu_row(gpu) for gpu in inventory.gpus]
    return [labelled("GPUs", driver), *visible_lines(inventory), *table(rows, right=(0, 2, 3, 4, 5, 6, 7))]


def gpu_row(gpu: Gpu) -> tuple[str, ...]:
    """One card's cells."""
    return (
        str(gpu.index),
        gpu.name,
        format_gib(gpu.memory_total_bytes),
        format_gib(gpu.memory_reserved_bytes),
        format_gib(gpu.memory_used_bytes),
        UNKNOWN if gpu.power_limit_w is None else f"{gpu.power_limit_w:.0f} W",
        UNKNOWN if gpu.clock_sm_max_mhz is None else f"{gpu.clock_sm_max_mhz} MHz",
        UNKNOWN if gpu.clock_memory_max_mhz is None else f"{gpu.clock_memory_max_mhz} MHz",
        UNKNOWN if gpu.mig is None else "on" if gpu.mig else "off",
    )


def visible_lines(inventory: Inventory) -> list[str]:
    """Which of the cards CUDA_VISIBLE_DEVICES leaves a training."""
    if inventory.cuda_visible_devices is None:
        return []
    seen = visible_gpus(inventory.gpus, inventory.cuda_visible_devices)
    which = "no GPU" if not seen else "GPU " + ", ".join(map(str, seen))
    return [
        labelled("", f"CUDA_VISIBLE_DEVICES={inventory.cuda_visible_devices}: a training started here sees {which}")
    ]


def ability_sections(gpus: Iterable[Gpu]) -> Iterator[list[str]]:
    """What each kind of card can do, and why."""
    kinds: dict[tuple[object, ...], list[Gpu]] = {}
    for gpu in gpus:
        kinds.setdefault((gpu.name, gpu.abilities), []).append(gpu)
    for alike in kinds.values():
        first = alike[0]
        if first.abilities:
            yield [
                f"{first.name}  ({indexes(alike)})",
                *(
                    line
                    for ability in first.abilities
                    for line in ability_lines(ability.name, ability.able, ability.reason)
                ),
            ]


def ability_lines(name: str, able: bool | None, reason: str) -> list[str]:
    """One ability with its reason, folded to the width."""
    answer = "?" if able is None else "yes" if able else "no"
    return hanging(f"  {name:<7}{answer:<5}", reason)


def process_lines(gpus: Iterable[Gpu]) -> list[str]:
    """Who computes on the cards."""
    rows = [
        (
            f"GPU {gpu.index}",
            str(process.pid),
            format_gib(process.memory_bytes),
            process.user or UNKNOWN,
            shorten(process.command or UNKNOWN, WIDTH - 40),
        )
        for gpu in gpus
        for process in gpu.processes
    ]
    if not rows:
        return []
    whose = "" if sees_host_pids() else " (pids of the host, not of this container)"
    return [f"Processes on the GPUs{whose}", *table([("", "pid", "memory", "user", "command"), *rows], right=(1, 2))]


def python_lines(interpreter: Interpreter) -> list[str]:
    """The interpreter and the versions of its packages."""
    lines = [labelled("Python", f"{interpreter.python_version or UNKNOWN}  {interpreter.path}")]
    packages = "  ".join(f"{name} {version}" for name, version in interpreter.packages.items())
    return lines + [labelled("", text) for text in wrap_text(packages, WIDTH - LABEL)]


def problem_lines(problems: Sequence[GpuProblem | Incompatibility], python: str | None) -> list[str]:
    """What is wrong, each with what to do about it."""
    lines = [
        line for problem in problems for line in (*hanging("! ", problem.sentence), *hanging("  ", problem.advice))
    ]
    return lines + ([] if python is None else hanging("! ", python))


def table(rows: Sequence[tuple[str, ...]], right: Sequence[int]) -> list[str]:
    """Rows in aligned columns, those of `right` to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines


def hanging(first: str, text: str) -> list[str]:
    """The text folded to the width, later lines indented as far as the first."""
    return wrap_text(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(first))


def shorten(text: str, width: int) -> str:
    """The text cut to the width, with a sign that it was; control characters of a command line become blanks."""
    clean = "".join(character if character.isprintable() else " " for character in text)
    return clean if len(clean) <= width else f"{clean[: width - 1]}…"


def labelled(label: str, text: str) -> str:
    """A line with its label in the left column."""
    return f"{label:<{LABEL}}{text}".rstrip()


def indexes(gpus: Sequence[Gpu]) -> str:
    """`GPU 0` or `GPUs 0, 1`."""
    numbers = ", ".join(str(gpu.index) for gpu in gpus)
    return f"GPU {numbers}" if len(gpus) == 1 else f"GPUs {numbers}"
