"""Samples of GPUs, host and processes at one moment. Unknown is `None`, never 0."""

from __future__ import annotations

from msgspec import Struct

from tuner_tui.core.json_struct import Count, Figure, Pid, Time, Whole
from tuner_tui.hardware.inventory import GpuProcess


class GpuSample(Struct, frozen=True):
    """One GPU at one moment; `power_w` in watts, clocks in MHz, `throttle` reasons by name, most urgent first.

    `age_s` is the age of the figures of a GPU that hangs. A lost GPU keeps its row, without figures; its `age_s`
    counts from its last ones. `processes` is None where the driver does not report them, and in a container, where the
    pids are the host's. `xid` is the newest critical error on the GPU since monitoring began, `xid_age_s` the seconds
    since it was noticed; None where there was none or the driver does not report them.
    """

    index: Count
    name: str
    utilisation_pct: Figure | None = None
    memory_used_bytes: Whole | None = None
    memory_total_bytes: Whole | None = None
    power_w: Figure | None = None
    power_limit_w: Figure | None = None
    temperature_c: Figure | None = None
    fan_pct: Figure | None = None
    clock_sm_mhz: Whole | None = None
    throttle: tuple[str, ...] = ()
    processes: tuple[GpuProcess, ...] | None = None
    lost: bool = False
    age_s: Figure | None = None
    xid: Whole | None = None
    xid_age_s: Figure | None = None


class HostSample(Struct, frozen=True):
    """The host at one moment; sizes in bytes, rates in bytes per second.

    Load is relative to what a training here may use, not to the whole machine. `per_core_pct` has the cores of the
    affinity mask, each 0 … 100, and `cpu_pct` is their mean, or the use of the cgroup's CPU quota where there is one.
    RAM is the use of the cgroup's memory limit where there is one, as exceeding it is what the kernel kills for.
    """

    cpu_pct: Figure | None = None
    per_core_pct: tuple[Figure, ...] = ()
    ram_used_bytes: Whole | None = None
    ram_total_bytes: Whole | None = None
    swap_used_bytes: Whole | None = None
    swap_total_bytes: Whole | None = None
    swap_in_bytes_s: Figure | None = None
    disk_read_bytes_s: Figure | None = None
    disk_write_bytes_s: Figure | None = None
    disk_free_bytes: Whole | None = None
    shm_free_bytes: Whole | None = None


class ProcessSample(Struct, frozen=True):
    """One process of the training; `role` is `main` (trainer), `worker` (loader worker) or `other`.

    `cpu_pct` is relative to one core: a process with four busy threads shows 400. `cpu_queue_pct` is the percentage of
    time that the main thread of a trainer or worker waited for a core; None where the kernel does not count that.
    `state` is that thread's at this moment, as in proc(5): D waits for a disk. A worker has its trainer's `rank`.
    """

    pid: Pid
    role: str
    cpu_pct: Figure | None = None
    rss_bytes: Whole | None = None
    rank: Whole | None = None
    cpu_queue_pct: Figure | None = None
    state: str | None = None


class Sample(Struct, frozen=True):
    """GPUs, host and the training's processes at `time_s` (seconds since the epoch)."""

    time_s: Time
    gpus: tuple[GpuSample, ...] = ()
    host: HostSample = HostSample()
    processes: tuple[ProcessSample, ...] = ()
