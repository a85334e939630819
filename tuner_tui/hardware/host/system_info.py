"""Facts of the host that are read once: processor, memory, file systems, process owners. Unknown is None."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from tuner_tui.core.procfs import PROC, read_text
from tuner_tui.hardware.host.cgroup import Cgroups
from tuner_tui.hardware.inventory import Cpu, HostMemory, Space

MODEL_KEYS = ("model name", "Model", "cpu model", "Processor")
"""What architectures call the processor in /proc/cpuinfo, the most telling first."""


def read_cpu(
    cgroups: Cgroups,
    *,
    proc: Path = PROC,
    affinity: Callable[[int], set[int]] = os.sched_getaffinity,
) -> Cpu:
    """The processor and how much of it this process may use."""
    allowed = len(affinity(0))
    quota = cgroups.tightest_cpu()
    return Cpu(
        model=cpu_model(read_text(proc / "cpuinfo").splitlines()),
        physical_cores=psutil.cpu_count(logical=False),
        logical_cores=max(allowed, psutil.cpu_count() or 0),
        affinity_cores=allowed,
        quota_cores=None if quota is None else quota.quota_cores,
    )


def read_memory(cgroups: Cgroups) -> HostMemory:
    """RAM, swap, and the cgroup's limit."""
    ram, limit = psutil.virtual_memory(), cgroups.tightest_memory()
    return HostMemory(
        total_bytes=ram.total,
        available_bytes=ram.available,
        limit_bytes=None if limit is None else limit.limit_bytes,
        swap_total_bytes=swap_bytes(),
    )


def swap_bytes() -> int:
    """All swap space. psutil warns where the kernel does not count what is swapped in, which nobody asked here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return int(psutil.swap_memory().total)


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


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Who a process is: its owner, its command line (empty where hidden), its start in seconds since the epoch."""

    user: str | None
    command: tuple[str, ...]
    started_s: float | None


def process_identity(pid: int) -> ProcessIdentity | None:
    """Who the process is, as far as this user may know; None when it has ended."""
    try:
        known = psutil.Process(pid).as_dict(["username", "cmdline", "create_time"])
    except psutil.NoSuchProcess:
        return None
    return ProcessIdentity(known["username"], tuple(known["cmdline"] or ()), known["create_time"])
