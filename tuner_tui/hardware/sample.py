"""What the box does at one moment. Frozen snapshots: unknown is `None`, never 0."""

from __future__ import annotations

from dataclasses import dataclass

from tuner_tui.hardware.inventory import GpuProcess


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One card at one moment; `power_w` in watts, clocks in MHz, `throttle` in words, most urgent first.

    `age_s` is how old the figures are when a hung card keeps them from moving. A lost card keeps its row, without
    figures; its `age_s` counts from its last ones. `processes` is None where the driver does not tell, and in a
    container, where its pids are the host's. `xid` is the driver's newest critical error on the card since it is
    watched, None where there was none or nobody tells; `xid_age_s` is how long ago it was noticed.
    """

    index: int
    name: str
    utilisation_pct: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    fan_pct: float | None = None
    clock_sm_mhz: int | None = None
    clock_memory_mhz: int | None = None
    throttle: tuple[str, ...] = ()
    processes: tuple[GpuProcess, ...] | None = None
    lost: bool = False
    age_s: float | None = None
    xid: int | None = None
    xid_age_s: float | None = None


@dataclass(frozen=True, slots=True)
class HostSample:
    """The host at one moment; bytes, and bytes a second.

    Load is measured against what a training here may use, not against the whole box. `per_core_pct` are the cores of
    the affinity mask, each 0 … 100, and `cpu_pct` their mean, or the use of the cgroup's CPU quota where one is set.
    RAM is the cgroup's use of its memory limit where one is set: that is what the kernel kills for.
    """

    cpu_pct: float | None = None
    per_core_pct: tuple[float, ...] = ()
    ram_used_bytes: int | None = None
    ram_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_in_bytes_s: float | None = None
    disk_read_bytes_s: float | None = None
    disk_write_bytes_s: float | None = None
    disk_free_bytes: int | None = None
    shm_free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process of the training: its trainer (`main`), a loader `worker`, or another child (`other`).

    `cpu_pct` is of one core: a process with four busy threads shows 400. `cpu_queue_pct` is the share of the time in
    which the main thread of a trainer or worker could run and got no core. Where the kernel does not
    count that, `could_run` tells whether it was on a core or in the queue at this moment, else None. A worker has its
    trainer's `rank`.
    """

    pid: int
    role: str
    cpu_pct: float | None = None
    rss_bytes: int | None = None
    rank: int | None = None
    cpu_queue_pct: float | None = None
    could_run: bool | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """GPUs, host and the training's processes at `time_s` (seconds since the epoch)."""

    time_s: float
    gpus: tuple[GpuSample, ...] = ()
    host: HostSample = HostSample()
    processes: tuple[ProcessSample, ...] = ()
