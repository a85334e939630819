"""What the host has, read once: cgroup limits, processor, memory, file systems, ports. Unknown is None.

psutil is imported where it is used: only the sockets come from it, /proc costs a fraction.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from tuner_tui.core.procfs import PROC, read_proc_text
from tuner_tui.hardware.inventory import Cpu, HostMemory, Space

UNLIMITED_BYTES = 1 << 60
"""Version 1 expresses "no limit" as a number near 2^63."""


class CgroupMemory(Struct, frozen=True):
    """A cgroup with a memory limit."""

    folder: Path
    limit_bytes: int

    def used_bytes(self) -> int | None:
        """Memory in use, without file cache that the kernel can reclaim at once; None where it cannot be read."""
        current = read_int(self.folder / "memory.current") or read_int(self.folder / "memory.usage_in_bytes")
        if current is None:
            return None
        # Inactive file cache counts against the limit, but is reclaimed before anything is killed.
        values = dict(
            line.split()[:2] for line in read_proc_text(self.folder / "memory.stat").splitlines() if " " in line
        )
        return max(0, current - int(values.get("total_inactive_file", values.get("inactive_file", 0))))


class CgroupCpu(Struct, frozen=True):
    """A cgroup with a CPU quota, in cores."""

    folder: Path
    quota_cores: float

    def used_s(self) -> float | None:
        """CPU seconds used by its processes so far; None where they cannot be read."""
        for line in read_proc_text(self.folder / "cpu.stat").splitlines():
            if line.startswith("usage_usec "):
                return int(line.split()[1]) / 1e6
        nanoseconds = read_int(self.folder / "cpuacct.usage")
        return None if nanoseconds is None else nanoseconds / 1e9


class Cgroups(Struct, frozen=True):
    """The cgroup folders of this process by controller, innermost first."""

    cpu: tuple[Path, ...]
    memory: tuple[Path, ...]

    @classmethod
    def of_this_process(cls, proc: Path = PROC, root: Path = Path("/sys/fs/cgroup")) -> Cgroups:
        """Reads /proc/self/cgroup, version 1, 2 or both; empty without cgroups."""
        return cls(*(tuple(cgroup_folders(controller, proc, root)) for controller in ("cpu", "memory")))

    def tightest_cpu(self) -> CgroupCpu | None:
        """The cgroup with the lowest CPU quota; None without one."""
        limited = [CgroupCpu(folder, cores) for folder in self.cpu if (cores := read_cpu_quota(folder)) is not None]
        return min(limited, key=lambda cgroup: cgroup.quota_cores, default=None)

    def tightest_memory(self) -> CgroupMemory | None:
        """The cgroup with the lowest memory limit; None without one."""
        limits = ((folder, read_memory_limit(folder)) for folder in self.memory)
        limited = [CgroupMemory(folder, limit) for folder, limit in limits if limit is not None]
        return min(limited, key=lambda cgroup: cgroup.limit_bytes, default=None)


def cgroup_folders(controller: str, proc: Path, root: Path) -> Iterator[Path]:
    """This process's cgroup of `controller` and its ancestors, innermost first.

    A container sees its own cgroup mounted at the root while /proc/self/cgroup may still give the host's path, so
    folders that do not exist are skipped.
    """
    for line in read_proc_text(proc / "self" / "cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        names = controllers.split(",") if controllers else []
        if controllers and controller not in names:
            continue
        mounts = [root / controllers, root / controller] if controllers else [root, root / "unified"]
        mount = next((mount for mount in mounts if mount.is_dir()), None)
        if mount is not None:
            parts = [part for part in path.split("/") if part not in ("", "..")]
            nest = (mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1))
            yield from (folder for folder in nest if folder.is_dir())


def read_cpu_quota(folder: Path) -> float | None:
    """A cgroup's own CPU quota in cores; None without one."""
    words = read_proc_text(folder / "cpu.max").split()
    if len(words) == 2 and words[0] != "max":
        return int(words[0]) / int(words[1])
    quota, period = read_int(folder / "cpu.cfs_quota_us"), read_int(folder / "cpu.cfs_period_us")
    return quota / period if quota is not None and period and quota > 0 else None


def read_memory_limit(folder: Path) -> int | None:
    """A cgroup's own memory limit in bytes; None without one."""
    limit = read_int(folder / "memory.max")
    if limit is None:
        limit = read_int(folder / "memory.limit_in_bytes")
    return limit if limit is not None and limit < UNLIMITED_BYTES else None


def read_int(path: Path) -> int | None:
    """The number in a file; None where it says `max` or cannot be read."""
    first = read_proc_text(path).strip()
    return int(first) if first.lstrip("-").isdigit() else None


TOPOLOGY = Path("/sys/devices/system/cpu")
MODEL_KEYS = ("model name", "Model", "cpu model", "Processor")
"""The key of the processor's name in /proc/cpuinfo, which depends on the architecture; best one first."""


def read_cpu(cgroups: Cgroups, *, proc: Path = PROC, affinity: Callable[[int], set[int]] = os.sched_getaffinity) -> Cpu:
    """The processor and how much of it this process may use."""
    allowed = len(affinity(0))
    siblings = {read_proc_text(path) for path in TOPOLOGY.glob("cpu[0-9]*/topology/thread_siblings_list")} - {""}
    quota = cgroups.tightest_cpu()
    return Cpu(
        model=cpu_model(read_proc_text(proc / "cpuinfo").splitlines()),
        physical_cores=len(siblings) or None,
        logical_cores=max(allowed, os.cpu_count() or 0),
        affinity_cores=allowed,
        quota_cores=None if quota is None else quota.quota_cores,
    )


def read_memory(cgroups: Cgroups) -> HostMemory:
    """RAM, swap, and the cgroup's limit."""
    memory, limit = read_meminfo(), cgroups.tightest_memory()
    return HostMemory(
        total_bytes=memory["MemTotal"],
        available_bytes=memory.get("MemAvailable"),
        limit_bytes=None if limit is None else limit.limit_bytes,
        swap_total_bytes=memory.get("SwapTotal"),
    )


def read_meminfo(proc: Path = PROC) -> dict[str, int]:
    """Four values of /proc/meminfo, in bytes."""
    wanted = {"MemTotal", "MemAvailable", "SwapTotal", "SwapFree"}
    values: dict[str, int] = {}
    for line in read_proc_text(proc / "meminfo").splitlines():
        name, _, size = line.partition(":")
        if name in wanted:
            values[name] = int(size.split()[0]) * 1024
            if len(values) == len(wanted):
                break
    return values


def read_space(folder: Path) -> Space | None:
    """The file system that `folder` is on, or will be on once it is created; None where it cannot be read."""
    for ancestor in (folder, *folder.absolute().parents):
        try:
            space = os.statvfs(ancestor)
        except OSError:
            continue
        total_bytes, free_bytes = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
        stores = (
            space.f_blocks + space.f_files > 0
        )  # /proc and /sys have room for nothing, though root may write to all
        writable = stores and ancestor.is_dir() and os.access(ancestor, os.W_OK | os.X_OK)
        return Space(str(folder), total_bytes, free_bytes, writable)
    return None


def cpu_model(cpuinfo: list[str]) -> str | None:
    """The processor's name, without trademark signs."""
    values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(cpuinfo))}
    name = next((values[key] for key in MODEL_KEYS if values.get(key)), None)
    if name is None:
        return None
    for mark in ("(R)", "(TM)", "(r)", "(tm)", " CPU", " Processor"):
        name = name.replace(mark, "")
    return " ".join(name.split())


def listening_pids(port: int) -> list[int]:
    """The processes of this user, or all for root, that listen on a TCP port."""
    import psutil

    try:
        sockets = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return []
    listening = (socket for socket in sockets if socket.status == psutil.CONN_LISTEN and socket.laddr[1:] == (port,))
    return sorted({socket.pid for socket in listening if socket.pid is not None})
