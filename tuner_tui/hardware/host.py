"""What the host is: processor, cores it may use, memory, space. Read once; what cannot be read is None."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tuner_tui.hardware.cgroup import Cgroups, lines
from tuner_tui.hardware.inventory import Cpu, HostMemory, Space

MODEL_KEYS = ("model name", "Model", "cpu model", "Processor")
"""What architectures call the processor in /proc/cpuinfo, the most telling first."""


def read_cpu(
    cgroups: Cgroups,
    *,
    proc: Path = Path("/proc"),
    devices: Path = Path("/sys/devices/system/cpu"),
    affinity: Callable[[int], set[int]] = os.sched_getaffinity,
) -> Cpu:
    """The processor and how much of it this process may use."""
    allowed = len(affinity(0))
    quota = cgroups.tightest_cpu()
    return Cpu(
        model=cpu_model(lines(proc / "cpuinfo")),
        physical_cores=physical_cores(devices),
        logical_cores=max(allowed, sum(line.startswith("cpu") for line in lines(proc / "stat")) - 1),
        affinity_cores=allowed,
        quota_cores=None if quota is None else quota.quota_cores,
    )


def read_memory(cgroups: Cgroups, *, proc: Path = Path("/proc")) -> HostMemory:
    """RAM, swap, and the cgroup's limit."""
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines(proc / "meminfo"))}
    limit = cgroups.tightest_memory()
    swap, available = kib.get("SwapTotal"), kib.get("MemAvailable")
    return HostMemory(
        total_bytes=kib["MemTotal"] * 1024,
        available_bytes=None if available is None else available * 1024,
        limit_bytes=None if limit is None else limit.limit_bytes,
        swap_total_bytes=None if swap is None else swap * 1024,
    )


def read_space(folder: Path) -> Space | None:
    """Size of the file system `folder` is on, or will be once it is made; None where none of its parents is there."""
    for place in (folder, *folder.absolute().parents):
        try:
            space = os.statvfs(place)
        except OSError:
            continue
        return Space(str(folder), space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize)
    return None


def cpu_model(cpuinfo: list[str]) -> str | None:
    """The processor's name, without the marks of trade."""
    values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(cpuinfo))}
    name = next((values[key] for key in MODEL_KEYS if values.get(key)), None)
    if name is None:
        return None
    for mark in ("(R)", "(TM)", "(r)", "(tm)", " CPU", " Processor"):
        name = name.replace(mark, "")
    return " ".join(name.split())


def physical_cores(devices: Path) -> int | None:
    """Cores, each counted once however many threads it runs."""
    siblings = {tuple(lines(path)) for path in devices.glob("cpu[0-9]*/topology/thread_siblings_list")}
    return len(siblings) or None
