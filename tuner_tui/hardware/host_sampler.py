"""Samples the host's load from /proc; rates are differences to the previous sample."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tuner_tui.core.procfs import PROC, read_proc_text
from tuner_tui.hardware.sample import HostSample
from tuner_tui.hardware.system_info import CgroupCpu, CgroupMemory, read_meminfo

SECTOR_BYTES = 512
"""/proc/diskstats counts in sectors of 512 bytes whatever the disk's own are (Documentation/admin-guide/iostats.rst).
"""
DISK_SPACE_EVERY = 5
STACKED = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd")
"""Prefixes of block devices that are no disks, or whose traffic counts again on the disks below them."""


class HostSampler:
    """Samples the host's load. `clock` is monotonic, in seconds; the folders are parameters for tests.

    Load is relative to what a training may use, not to the whole machine: only the `cores` of the affinity mask count,
    CPU is the use of the cgroup's quota where `cpu` has one, and RAM the use of the cgroup's limit where `memory` has
    one, as exceeding that limit is what the kernel kills for.
    """

    def __init__(
        self,
        disk_folder: Path,
        clock: Callable[[], float],
        *,
        proc: Path = PROC,
        block: Path = Path("/sys/block"),
        shm: Path = Path("/dev/shm"),  # noqa: S108  its size is read, nothing is written
        cores: frozenset[int] | None = None,
        cpu: CgroupCpu | None = None,
        memory: CgroupMemory | None = None,
    ) -> None:
        self._disk_folder = disk_folder
        self._shm = shm
        self._clock = clock
        self._proc = proc
        self._disks = list_disks(block)
        self._allowed = cores
        self._quota = cpu
        self._memory = memory
        self._ticks = 0
        self._read_s: float | None = None
        self._cores: dict[int, tuple[int, int]] = {}
        self._counters: dict[str, float] = {}
        self._free: tuple[int | None, int | None] = (None, None)

    def sample(self) -> HostSample:
        """The load since the previous call; rates and CPU are None at the first one."""
        now = self._clock()
        elapsed_s = None if self._read_s is None else max(now - self._read_s, 1e-3)
        self._read_s = now
        per_core_pct = self._per_core()
        memory = read_meminfo(self._proc)
        rates = self._rates(elapsed_s, swap=bool(memory.get("SwapTotal")))
        cpu_pct = sum(per_core_pct) / len(per_core_pct) if per_core_pct else None
        if "quota_used" in rates:
            cpu_pct = min(100.0, 100 * rates["quota_used"])
        if self._ticks % DISK_SPACE_EVERY == 0:  # a network disk may be slow
            self._free = (free_disk_bytes(self._disk_folder), free_disk_bytes(self._shm))
        self._ticks += 1
        disk_free, shm_free = self._free
        total, available = memory.get("MemTotal"), memory.get("MemAvailable")
        used = None if total is None or available is None else total - available
        if self._memory is not None:
            used, total = self._memory.used_bytes(), self._memory.limit_bytes
        swap_total, swap_free = memory.get("SwapTotal"), memory.get("SwapFree")
        return HostSample(
            cpu_pct=cpu_pct,
            per_core_pct=per_core_pct,
            ram_used_bytes=used,
            ram_total_bytes=total,
            swap_used_bytes=None if swap_total is None or swap_free is None else swap_total - swap_free,
            swap_total_bytes=swap_total,
            swap_in_bytes_s=rates.get("swap_in"),
            disk_read_bytes_s=rates.get("disk_read"),
            disk_write_bytes_s=rates.get("disk_write"),
            disk_free_bytes=disk_free,
            shm_free_bytes=shm_free,
        )

    def _per_core(self) -> tuple[float, ...]:
        before, self._cores = self._cores, core_times(read_proc_text(self._proc / "stat"), self._allowed)
        if before.keys() != self._cores.keys():
            return ()
        return tuple(
            busy_pct(busy - before[core][0], total - before[core][1]) for core, (busy, total) in self._cores.items()
        )

    def _rates(self, elapsed_s: float | None, swap: bool) -> dict[str, float]:
        """Growth per second of each counter since the previous call, where it was read both times."""
        counters: dict[str, float] = {**disk_bytes(read_proc_text(self._proc / "diskstats"), self._disks)}
        if self._quota is not None and (used_s := self._quota.used_s()) is not None:
            counters["quota_used"] = used_s / self._quota.quota_cores
        pages = read_proc_text(self._proc / "vmstat").partition("pswpin ")[2].split(None, 1)[:1] if swap else []
        if pages:  # read back from swap since boot
            counters["swap_in"] = int(pages[0]) * os.sysconf("SC_PAGE_SIZE")
        # Counters only grow, but for a disk that was removed or a counter that wrapped: such a difference counts as 0.
        before, self._counters = self._counters, counters
        if elapsed_s is None:
            return {}
        return {name: max(0.0, value - before[name]) / elapsed_s for name, value in counters.items() if name in before}


def core_times(stat: str, allowed: frozenset[int] | None) -> dict[int, tuple[int, int]]:
    """(busy, total) ticks of each core in `allowed`, or of all cores.

    Guest time is part of user time; waiting for a disk counts as idle.
    """
    times = {}
    for line in stat.splitlines()[1:]:
        if not line.startswith("cpu"):
            break
        name, *fields = line.split(None, 9)
        core = int(name[3:])
        if allowed is None or core in allowed:
            ticks = [int(field) for field in fields[:8]]
            total = sum(ticks)
            times[core] = (total - ticks[3] - ticks[4], total)
    return times


def busy_pct(part: int, whole: int) -> float:
    """`part` of `whole` in percent, 0 … 100; on virtual machines counters may step back a little."""
    return 0.0 if whole <= 0 else min(100.0, max(0.0, 100 * part / whole))


def list_disks(block: Path) -> frozenset[str]:
    """Names of the physical disks, without devices stacked on them."""
    try:
        names = os.listdir(block)  # noqa: PTH208
    except OSError:
        return frozenset()
    return frozenset(name for name in names if not name.startswith(STACKED))


def disk_bytes(diskstats: str, names: frozenset[str]) -> dict[str, int]:
    """`disk_read` and `disk_write`: bytes since boot, summed over the disks `names`; empty where none is listed."""
    rows = [line.split(None, 10) for line in diskstats.splitlines()]
    disks = [row for row in rows if len(row) > 9 and row[2] in names]
    read, written = (SECTOR_BYTES * sum(int(row[column]) for row in disks) for column in (5, 9))
    return {"disk_read": read, "disk_write": written} if disks else {}


def free_disk_bytes(folder: Path) -> int | None:
    """Bytes that this user may still write below `folder`; None where it does not exist."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return None
    return space.f_bavail * space.f_frsize
