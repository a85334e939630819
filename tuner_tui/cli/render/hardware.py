"""What `doctor --hardware` prints: the machine, what its GPUs can do, and the Python that trains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tuner_tui.cli.render.text import (
    LABEL,
    WIDTH,
    format_table,
    format_unit,
    hanging_lines,
    join_sections,
    labelled_line,
    shorten,
    warning_lines,
)
from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import UNKNOWN, format_gib
from tuner_tui.hardware.environment import sees_host_pids, visible_gpus
from tuner_tui.hardware.interpreter.probe import (
    Incompatibility,
    Interpreter,
)
from tuner_tui.hardware.inventory import Cpu, Gpu, GpuProblem, HostMemory, Inventory, Space

GPU_HEADINGS = ("", "name", "memory", "reserved", "in use", "power", "SM clock", "mem clock", "MIG")


def hardware_report(inventory: Inventory, interpreter: Interpreter, problems: Sequence[Incompatibility]) -> list[str]:
    """Return the whole report."""
    return join_sections(
        [
            _host_lines(inventory),
            _gpu_lines(inventory),
            *_ability_sections(inventory.gpus),
            _process_lines(inventory.gpus),
            _python_lines(interpreter),
            _problem_lines([*inventory.problems, *problems], interpreter.problem),
            [] if inventory.logout_warning is None else warning_lines(inventory.logout_warning),
        ]
    )


def _host_lines(inventory: Inventory) -> list[str]:
    environment = [name for name in (inventory.container, inventory.multiplexer) if name]
    return [
        labelled_line("Host", " · ".join([inventory.hostname, *environment])),
        *_cpu_lines(inventory.cpu),
        *_memory_lines(inventory.memory),
        *_space_lines("/dev/shm", inventory.shm),  # noqa: S108  a label
        *_space_lines("Disk", inventory.disk, with_path=True),
    ]


def _cpu_lines(cpu: Cpu) -> list[str]:
    physical = UNKNOWN if cpu.physical_cores is None else cpu.physical_cores
    limits = []
    if cpu.affinity_cores < cpu.logical_cores:
        limits.append(f"affinity {cpu.affinity_cores}")
    if cpu.quota_cores is not None:
        limits.append(f"cgroup quota {cpu.quota_cores:g}")
    usable = f"{cpu.usable_cores} usable" + (f" ({', '.join(limits)})" if limits else "")
    return [
        labelled_line("CPU", cpu.model or "unknown processor"),
        labelled_line("Cores", f"{usable} · {cpu.logical_cores} logical · {physical} physical"),
    ]


def _memory_lines(memory: HostMemory) -> list[str]:
    parts = [format_gib(memory.total_bytes)]
    if memory.available_bytes is not None:
        parts.append(f"{format_gib(memory.available_bytes)} available")
    if memory.limit_bytes is not None:
        parts.append(f"cgroup limit {format_gib(memory.limit_bytes)}")
    swap = "none" if memory.swap_total_bytes == 0 else format_gib(memory.swap_total_bytes)
    return [labelled_line("RAM", " · ".join(parts)), labelled_line("Swap", swap)]


def _space_lines(label: str, space: Space | None, with_path: bool = False) -> list[str]:
    if space is None:
        return []
    free = f"{format_gib(space.free_bytes)} free of {format_gib(space.total_bytes)}"
    return [labelled_line(label, f"{free}  {space.path}" if with_path else free)]


def _gpu_lines(inventory: Inventory) -> list[str]:
    if not inventory.gpus:
        return [labelled_line("GPUs", "none usable")]
    driver = f"driver {inventory.driver_version or UNKNOWN} · CUDA {inventory.cuda_version or UNKNOWN}"
    table = format_table([GPU_HEADINGS, *map(_gpu_cells, inventory.gpus)], right=(0, *range(2, 8)))
    return [labelled_line("GPUs", driver), *_visibility_lines(inventory), *table]


def _gpu_cells(gpu: Gpu) -> tuple[str, ...]:
    return (
        str(gpu.index),
        gpu.name,
        format_gib(gpu.memory_total_bytes),
        format_gib(gpu.memory_reserved_bytes),
        format_gib(gpu.memory_used_bytes),
        format_unit(gpu.power_limit_w, "W"),
        format_unit(gpu.clock_sm_max_mhz, "MHz"),
        format_unit(gpu.clock_memory_max_mhz, "MHz"),
        UNKNOWN if gpu.mig is None else "on" if gpu.mig else "off",
    )


def _visibility_lines(inventory: Inventory) -> list[str]:
    """Return which GPUs CUDA_VISIBLE_DEVICES leaves to a training, if it is set."""
    if inventory.cuda_visible_devices is None:
        return []
    visible = visible_gpus(inventory.gpus, inventory.cuda_visible_devices)
    which = "no GPU" if not visible else "GPU " + ", ".join(map(str, visible))
    text = f"CUDA_VISIBLE_DEVICES={inventory.cuda_visible_devices}: a training started here uses {which}"
    return [labelled_line("", text)]


def _ability_sections(gpus: Iterable[Gpu]) -> Iterator[list[str]]:
    """Yield one section for each kind of GPU: its abilities and the reason for each."""
    kinds: dict[tuple[object, ...], list[Gpu]] = {}
    for gpu in gpus:
        kinds.setdefault((gpu.name, gpu.abilities), []).append(gpu)
    for same in kinds.values():
        lines = [f"{same[0].name}  ({_gpu_numbers(same)})"]
        for ability in same[0].abilities:
            answer = "?" if ability.able is None else "yes" if ability.able else "no"
            lines += hanging_lines(f"  {ability.name:<7}{answer:<5}", ability.reason)
        if len(lines) > 1:
            yield lines


def _process_lines(gpus: Iterable[Gpu]) -> list[str]:
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
    namespace = "" if sees_host_pids() else " (host pids, not those of this container)"
    table = format_table([("", "pid", "memory", "user", "command"), *rows], right=(1, 2))
    return [f"Processes on the GPUs{namespace}", *table]


def _python_lines(interpreter: Interpreter) -> list[str]:
    lines = [labelled_line("Python", f"{interpreter.python_version or UNKNOWN}  {interpreter.path}")]
    packages = "  ".join(f"{name} {version}" for name, version in interpreter.packages.items())
    return lines + [labelled_line("", text) for text in wrap_text(packages, WIDTH - LABEL)]


def _problem_lines(problems: Sequence[GpuProblem | Incompatibility], python_problem: str | None) -> list[str]:
    lines = [
        line
        for problem in problems
        for line in (*warning_lines(problem.sentence), *hanging_lines("  ", problem.advice))
    ]
    return lines + ([] if python_problem is None else warning_lines(python_problem))


def _gpu_numbers(gpus: Sequence[Gpu]) -> str:
    """Return `GPU 0` or `GPUs 0, 1`."""
    numbers = ", ".join(str(gpu.index) for gpu in gpus)
    return f"GPU {numbers}" if len(gpus) == 1 else f"GPUs {numbers}"


def usable(inventory: Inventory) -> dict[str, Any]:
    """Return the cores, bytes of RAM and GPU indices a training started here may use, with all limits applied."""
    return {
        "cores": inventory.cpu.usable_cores,
        "memory_bytes": inventory.memory.usable_bytes,
        "gpus": visible_gpus(inventory.gpus, inventory.cuda_visible_devices),
    }
