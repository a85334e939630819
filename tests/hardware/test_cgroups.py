from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.procfs import write_tree
from tuner_tui.core.files import read_data_file
from tuner_tui.hardware.system_info import CgroupCpu, CgroupMemory, Cgroups

GIB = 1024**3
CASES = read_data_file(Path(__file__).with_name("cgroups.yaml"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_tightest_limits(tmp_path: Path, case: dict[str, Any]):
    proc = write_tree(tmp_path / "proc", {"self/cgroup": case["self"]})
    root = write_tree(tmp_path / "cgroup", case["files"])
    cgroups = Cgroups.of_this_process(proc, root)
    cpu, (gib, folder) = cgroups.tightest_cpu(), case.get("memory", (None, None))
    assert (None if cpu is None else cpu.quota_cores) == case.get("cores")
    assert cgroups.tightest_memory() == (None if gib is None else CgroupMemory(root / folder, gib * GIB))


def test_no_cgroups_mean_no_limits(tmp_path: Path):
    cgroups = Cgroups.of_this_process(tmp_path / "nothing", tmp_path / "none")
    assert cgroups.tightest_cpu() is None
    assert cgroups.tightest_memory() is None


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
