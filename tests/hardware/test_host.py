from __future__ import annotations

from pathlib import Path

import pytest

from tests.hardware.trees import write
from tuner_tui.hardware.cgroup import Cgroups
from tuner_tui.hardware.host import cpu_model, read_cpu, read_memory, read_space

FREE = Cgroups((), ())


def quota(tmp_path: Path, cores: float) -> Cgroups:
    return Cgroups((write(tmp_path / "quota", {"cpu.max": f"{int(cores * 100000)} 100000"}),), ())


def box(tmp_path: Path) -> tuple[Path, Path]:
    """Two sockets of two cores with two threads each."""
    stat = "".join(f"cpu{core} 0 0 0 0 0 0 0 0\n" for core in range(8))
    proc = write(
        tmp_path / "proc",
        {
            "stat": f"cpu  0 0 0 0 0 0 0 0\n{stat}intr 5\n",
            "cpuinfo": "processor: 0\nmodel name\t: Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz\n",
            "meminfo": "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    600 kB\nSwapTotal: 0 kB\n"
            "HugePages_Total: 0\n",
        },
    )
    siblings = {f"cpu{n}/topology/thread_siblings_list": f"{n % 4},{n % 4 + 4}\n" for n in range(8)}
    return proc, write(tmp_path / "cpu", siblings)


def test_cores_of_the_box_and_those_that_may_be_used(tmp_path: Path):
    proc, devices = box(tmp_path)
    cpu = read_cpu(quota(tmp_path, 2.5), proc=proc, devices=devices, affinity=lambda _: {0, 1, 2, 3})
    assert cpu.model == "Intel Xeon E5-2690 v4 @ 2.60GHz"
    assert (cpu.logical_cores, cpu.physical_cores, cpu.affinity_cores, cpu.quota_cores) == (8, 4, 4, 2.5)
    assert cpu.usable_cores == 2


def test_without_topology_the_physical_cores_are_unknown(tmp_path: Path):
    proc, _ = box(tmp_path)
    assert read_cpu(FREE, proc=proc, devices=tmp_path / "none").physical_cores is None


def test_memory_and_its_limit(tmp_path: Path):
    proc, _ = box(tmp_path)
    limited = Cgroups((), (write(tmp_path / "limit", {"memory.max": "512000"}),))
    memory = read_memory(limited, proc=proc)
    assert (memory.total_bytes, memory.available_bytes) == (1024000, 614400)
    assert (memory.limit_bytes, memory.usable_bytes, memory.swap_total_bytes) == (512000, 512000, 0)


def test_space_of_a_folder_that_is_not_made_yet_is_that_of_where_it_will_be(tmp_path: Path):
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
