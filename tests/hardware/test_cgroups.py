from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.procfs import write_tree
from tuner_tui.hardware.system_info import CgroupCpu, CgroupMemory, Cgroups

GIB = 1024**3
NO_LIMIT_V1 = "9223372036854771712\n"


def cgroups(folder: Path, self_cgroup: str, tree: dict[str, str]) -> Cgroups:
    proc = write_tree(folder / "proc", {"self/cgroup": self_cgroup})
    root = write_tree(folder / "cgroup", tree)
    return Cgroups.of_this_process(proc, root)


def cores(found: Cgroups) -> float | None:
    cpu = found.tightest_cpu()
    return None if cpu is None else cpu.quota_cores


def test_no_cgroups_mean_no_limits(tmp_path: Path):
    found = Cgroups.of_this_process(tmp_path / "nothing", tmp_path / "none")
    assert found.tightest_cpu() is None
    assert found.tightest_memory() is None


def test_version_2_in_a_container_that_sees_its_cgroup_as_the_root(tmp_path: Path):
    found = cgroups(tmp_path, "0::/\n", {"cpu.max": "250000 100000\n", "memory.max": f"{4 * GIB}\n"})
    assert cores(found) == 2.5
    assert found.tightest_memory() == CgroupMemory(tmp_path / "cgroup", 4 * GIB)


def test_version_2_without_limits(tmp_path: Path):
    found = cgroups(tmp_path, "0::/a\n", {"a/cpu.max": "max 100000\n", "a/memory.max": "max\n"})
    assert found.tightest_cpu() is None
    assert found.tightest_memory() is None


def test_the_tightest_of_a_nest_counts_wherever_it_stands(tmp_path: Path):
    found = cgroups(
        tmp_path,
        "0::/slurm/job_7/step_0\n",
        {
            "slurm/cpu.max": "6400000 100000\n",
            "slurm/memory.max": "max\n",
            "slurm/job_7/cpu.max": "400000 100000\n",
            "slurm/job_7/memory.max": f"{64 * GIB}\n",
            "slurm/job_7/step_0/cpu.max": "800000 100000\n",
            "slurm/job_7/step_0/memory.max": f"{128 * GIB}\n",
        },
    )
    assert cores(found) == 4.0
    assert found.tightest_memory() == CgroupMemory(tmp_path / "cgroup/slurm/job_7", 64 * GIB)


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_version_1(tmp_path: Path, mount: str):
    found = cgroups(
        tmp_path,
        f"5:{mount}:/docker/abc\n4:memory:/docker/abc\n0::/ignored\n",
        {
            f"{mount}/docker/abc/cpu.cfs_quota_us": "150000\n",
            f"{mount}/docker/abc/cpu.cfs_period_us": "100000\n",
            "memory/memory.limit_in_bytes": NO_LIMIT_V1,
            "memory/docker/abc/memory.limit_in_bytes": f"{2 * GIB}\n",
        },
    )
    assert cores(found) == 1.5
    assert found.tightest_memory() == CgroupMemory(tmp_path / "cgroup/memory/docker/abc", 2 * GIB)


def test_version_1_in_a_container_whose_path_is_the_hosts(tmp_path: Path):
    found = cgroups(
        tmp_path,
        "4:memory:/docker/abc\n5:cpu:/docker/abc\n",
        {
            "memory/memory.limit_in_bytes": f"{GIB}\n",
            "cpu/cpu.cfs_quota_us": "-1\n",
            "cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert found.tightest_memory() == CgroupMemory(tmp_path / "cgroup/memory", GIB)
    assert found.tightest_cpu() is None


@pytest.mark.parametrize(
    ("tree", "used"),
    [
        ({"memory.current": "1000\n", "memory.stat": "anon 1\ninactive_file 300\n"}, 700),
        ({"memory.usage_in_bytes": "1000\n", "memory.stat": "inactive_file 1\ntotal_inactive_file 400\n"}, 600),
        ({"memory.current": "1000\n"}, 1000),
        ({}, None),
    ],
)
def test_memory_used_leaves_out_the_cache_that_can_be_dropped(tmp_path: Path, tree: dict[str, str], used: int | None):
    assert CgroupMemory(write_tree(tmp_path, tree), GIB).used_bytes() == used


@pytest.mark.parametrize(
    ("tree", "used_s"),
    [
        ({"cpu.stat": "usage_usec 2500000\nuser_usec 1\nnr_throttled 3\n"}, 2.5),
        ({"cpuacct.usage": "1500000000\n", "cpu.stat": "nr_periods 1\n"}, 1.5),
        ({}, None),
    ],
)
def test_cpu_time_used(tmp_path: Path, tree: dict[str, str], used_s: float | None):
    assert CgroupCpu(write_tree(tmp_path, tree), 2.0).used_s() == used_s
