from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.procfs import write_tree
from tuner_tui.hardware.system_info import Cgroups, cpu_model, read_cpu, read_memory, read_space

FREE = Cgroups((), ())


def quota(tmp_path: Path, cores: float) -> Cgroups:
    return Cgroups((write_tree(tmp_path / "quota", {"cpu.max": f"{int(cores * 100000)} 100000"}),), ())


def test_cores_of_the_box_and_those_that_may_be_used(tmp_path: Path):
    cpuinfo = "processor: 0\nmodel name\t: Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz\n"
    proc = write_tree(tmp_path / "proc", {"cpuinfo": cpuinfo})
    cpu = read_cpu(quota(tmp_path, 0.5), proc=proc, affinity=lambda _: set(range(5000)))
    assert cpu.model == "Intel Xeon E5-2690 v4 @ 2.60GHz"
    assert (cpu.logical_cores, cpu.affinity_cores, cpu.quota_cores, cpu.usable_cores) == (5000, 5000, 0.5, 1)


def test_this_box_has_no_more_physical_than_logical_cores():
    cpu = read_cpu(FREE)
    assert cpu.physical_cores is None or 1 <= cpu.physical_cores <= cpu.logical_cores
    assert cpu.logical_cores >= cpu.affinity_cores >= 1


def test_memory_and_its_limit(tmp_path: Path):
    limited = Cgroups((), (write_tree(tmp_path / "limit", {"memory.max": "512000"}),))
    memory = read_memory(limited)
    kib = {line.split(":")[0]: int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines()}
    assert (memory.total_bytes, memory.swap_total_bytes) == (kib["MemTotal"] * 1024, kib["SwapTotal"] * 1024)
    assert memory.available_bytes is not None
    assert 0 < memory.available_bytes <= memory.total_bytes
    assert (memory.limit_bytes, memory.usable_bytes) == (512000, 512000)


def test_space_of_a_folder_that_is_not_made_yet_is_that_of_where_it_will_be(tmp_path: Path):
    (tmp_path / "file").touch()
    below = read_space(tmp_path / "file" / "yet")
    assert below is not None
    assert not below.writable
    kernel = read_space(Path("/proc/runs"))
    assert kernel is not None
    assert not kernel.writable, "not a disk that is full"
    space = read_space(tmp_path / "not" / "yet")
    assert space is not None
    assert space.path == str(tmp_path / "not" / "yet")
    assert 0 < space.free_bytes <= space.total_bytes


@pytest.mark.parametrize(
    ("cpuinfo", "model"),
    [
        (["model name : AMD EPYC 7763 64-Core Processor"], "AMD EPYC 7763 64-Core"),
        (["processor : 0", "Model : Raspberry Pi 5"], "Raspberry Pi 5"),
        (["processor : 0", "BogoMIPS : 50"], None),
    ],
)
def test_processor_names(cpuinfo: list[str], model: str | None):
    assert cpu_model(cpuinfo) == model
