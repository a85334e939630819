from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.gpu_reader import Clock
from tests.fakes.procfs import write_tree
from tuner_tui.hardware.host_sampler import HostSampler
from tuner_tui.hardware.system_info import CgroupCpu, CgroupMemory

PAGE = os.sysconf("SC_PAGE_SIZE")


class Host:
    """A made-up host whose counters a test moves."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        self.proc, self.clock = folder / "proc", Clock()
        block = folder / "block"
        for name in ("nvme0n1", "loop0", "dm-0"):
            (block / name).mkdir(parents=True)
        self.set()
        self.meter = HostSampler(folder, self.clock, proc=self.proc, block=block, shm=folder / "none", **limits)

    def set(self, busy: tuple[int, int] = (0, 0), idle: tuple[int, int] = (0, 0), read: int = 0, written: int = 0,
            swapped_in: int = 0, swap_kib: int = 2000) -> None:  # fmt: skip
        cores = [f"cpu{n} {busy[n]} 0 0 {idle[n]} 0 0 0 0 0 0" for n in (0, 1)]
        total = f"cpu  {sum(busy)} 0 0 {sum(idle)} 0 0 0 0 0 0"
        disk = f"259 0 nvme0n1 1 0 {read} 0 1 0 {written} 0 0 0 0\n259 1 nvme0n1p1 1 0 999 0 1 0 999 0 0 0 0\n"
        write_tree(
            self.proc,
            {
                "stat": "\n".join([total, *cores, "intr 1 2 3"]),
                "meminfo": f"MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapTotal: {swap_kib} kB\nSwapFree: 500 kB\n",
                "diskstats": disk + "253 0 dm-0 1 0 777 0 1 0 777 0 0 0 0\n",
                "vmstat": f"pgpgin 5\npswpin {swapped_in}\npswpout 7\n",
            },
        )


def test_the_first_sample_knows_sizes_but_no_rates(tmp_path: Path):
    sample = Host(tmp_path).meter.sample()
    assert (sample.cpu_pct, sample.per_core_pct, sample.disk_read_bytes_s, sample.swap_in_bytes_s) == (
        None,
        (),
        None,
        None,
    )
    assert (sample.ram_used_bytes, sample.ram_total_bytes) == (600 * 1024, 1000 * 1024)
    assert (sample.swap_used_bytes, sample.swap_total_bytes) == (1500 * 1024, 2000 * 1024)
    assert sample.disk_free_bytes is not None
    assert sample.shm_free_bytes is None


def test_cpu_is_the_share_of_time_since_the_sample_before(tmp_path: Path):
    host = Host(tmp_path)
    host.set(busy=(100, 100), idle=(100, 100))
    host.meter.sample()
    host.set(busy=(200, 125), idle=(100, 175))
    host.clock.now_s += 1
    sample = host.meter.sample()
    assert sample.per_core_pct == (100.0, 25.0)
    assert sample.cpu_pct == 62.5


def test_only_the_cores_of_the_affinity_mask_count(tmp_path: Path):
    host = Host(tmp_path, cores=frozenset({1}))
    host.meter.sample()
    host.set(busy=(100, 30), idle=(0, 70))
    sample = host.meter.sample()
    assert (sample.per_core_pct, sample.cpu_pct) == ((30.0,), 30.0)


@pytest.mark.parametrize(("used_usec", "cpu_pct"), [(1_500_000, 50.0), (9_000_000, 100.0)])
def test_under_a_quota_cpu_is_what_is_used_of_it(tmp_path: Path, used_usec: int, cpu_pct: float):
    folder = write_tree(tmp_path / "group", {"cpu.stat": "usage_usec 0\n"})
    host = Host(tmp_path, cpu=CgroupCpu(folder, 1.5))
    assert host.meter.sample().cpu_pct is None
    write_tree(folder, {"cpu.stat": f"usage_usec {used_usec}\n"})
    host.clock.now_s += 2
    assert host.meter.sample().cpu_pct == cpu_pct


def test_rates_are_bytes_a_second_of_whole_disks(tmp_path: Path):
    host = Host(tmp_path)
    host.meter.sample()
    host.set(read=40, written=20, swapped_in=6)
    host.clock.now_s += 2
    sample = host.meter.sample()
    assert (sample.disk_read_bytes_s, sample.disk_write_bytes_s) == (20 * 512, 10 * 512)
    assert sample.swap_in_bytes_s == 3 * PAGE


def test_without_swap_its_rate_is_unknown(tmp_path: Path):
    host = Host(tmp_path)
    host.set(swap_kib=0)
    host.meter.sample()
    host.clock.now_s += 1
    assert host.meter.sample().swap_in_bytes_s is None


def test_under_a_cgroup_limit_ram_is_the_cgroups(tmp_path: Path):
    folder = write_tree(tmp_path / "group", {"memory.current": "5000"})
    sample = Host(tmp_path, memory=CgroupMemory(folder, 8000)).meter.sample()
    assert (sample.ram_used_bytes, sample.ram_total_bytes) == (5000, 8000)


def test_a_core_that_came_or_went_makes_cpu_unknown_once(tmp_path: Path):
    host = Host(tmp_path)
    host.meter.sample()
    write_tree(host.proc, {"stat": "cpu  1 0 0 1 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0\n"})
    assert host.meter.sample().cpu_pct is None


@pytest.mark.parametrize("missing", ["stat", "meminfo", "diskstats", "vmstat"])
def test_an_unreadable_file_leaves_its_figures_unknown(tmp_path: Path, missing: str):
    host = Host(tmp_path)
    (host.proc / missing).unlink()
    host.meter.sample()
    host.clock.now_s += 1
    sample = host.meter.sample()
    unknown = {
        "stat": sample.cpu_pct,
        "meminfo": sample.ram_used_bytes,
        "diskstats": sample.disk_read_bytes_s,
        "vmstat": sample.swap_in_bytes_s,
    }
    assert unknown[missing] is None
