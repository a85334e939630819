"""What other processes use of the machine, measured over about a second, and which ones they are."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from tuner_tui.core.procfs import PROC, all_processes, read_command_line
from tuner_tui.hardware.processes import brief_command
from tuner_tui.hardware.sample import Sample

# A clock tick is 10 ms: over a second the share of a core is known to one percent.
MEASURED_S = 1.0
MIN_NAMED_CORES = 0.1
"""Cores that a process uses at least if it is named."""
MAX_NAMED = 3


class BusyProcess(Struct, frozen=True, kw_only=True):
    """A process, or several of one name, that use `cores` cores; a brief command without secrets."""

    command: str
    cores: float


class OtherLoad(Struct, frozen=True, kw_only=True):
    """What other processes than this one use.

    Attributes:
        cpu_share: Share of the cores that a training may use, from 0 to 1; None if unknown.
        processes: The busiest ones on these cores, busiest first. Those of other containers are not visible.
        gpu_share: Highest utilisation of a GPU, from 0 to 1; None without a GPU.
        gpu_processes: Commands of the processes on the GPUs, as far as they are known.
    """

    cpu_share: float | None = None
    processes: tuple[BusyProcess, ...] = ()
    gpu_share: float | None = None
    gpu_processes: tuple[str, ...] = ()


def measure_other_load(
    sample: Callable[[], Sample],
    cores: float,
    *,
    wait: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    proc: Path = PROC,
    own_pid: int | None = None,
    affinity: Callable[[int], set[int]] = os.sched_getaffinity,
) -> OtherLoad:
    """Return the load by all processes but `own_pid`. Takes `MEASURED_S` seconds.

    `sample` returns the load since its previous call, relative to `cores`: those of this process's affinity mask.
    """
    own_pid = os.getpid() if own_pid is None else own_pid
    allowed = affinity(own_pid)
    # Its rates are differences to its previous sample, so it is asked at both ends of the measured second.
    sample()
    before, since_s = _cpu_seconds(proc), clock()
    wait(MEASURED_S)
    load, after, elapsed_s = sample(), _cpu_seconds(proc), max(clock() - since_s, 1e-3)
    load_of = {pid: (after[pid] - seconds) / elapsed_s for pid, seconds in before.items() if pid in after}
    own_cores = load_of.pop(own_pid, 0.0)
    total_pct = load.host.cpu_pct
    loads: dict[str, list[float]] = {}
    for pid, used in load_of.items():
        with suppress(OSError):  # it has ended
            if used >= MIN_NAMED_CORES and allowed & affinity(pid):
                loads.setdefault(brief_command(read_command_line(pid, proc)) or f"process {pid}", []).append(used)
    processes = [
        BusyProcess(command=f"{len(shares)} × {command}" if len(shares) > 1 else command, cores=round(sum(shares), 2))
        for command, shares in loads.items()
    ]
    busy_gpus = [gpu.utilisation_pct / 100 for gpu in load.gpus if gpu.utilisation_pct is not None]
    on_gpus = (process for gpu in load.gpus for process in gpu.processes or ())
    return OtherLoad(
        cpu_share=None if total_pct is None else max(0.0, total_pct / 100 - own_cores / cores),
        processes=tuple(sorted(processes, key=lambda process: -process.cores)[:MAX_NAMED]),
        gpu_share=max(busy_gpus, default=None),
        gpu_processes=tuple(dict.fromkeys(process.command for process in on_gpus if process.command))[:MAX_NAMED],
    )


def _cpu_seconds(proc: Path) -> dict[int, float]:
    return {stat.pid: stat.cpu_s for stat in all_processes(proc) if stat.is_running}
