"""On a machine with NVIDIA GPUs, what we read must be what nvidia-smi says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tuner_tui.hardware.detect import read_inventory
from tuner_tui.hardware.driver import GpuUnavailable
from tuner_tui.hardware.nvml import NvmlReader
from tuner_tui.hardware.sampler import open_sampler

pytestmark = pytest.mark.gpu
MIB = 1024**2


@pytest.fixture(scope="module", autouse=True)
def _gpus() -> None:
    try:
        NvmlReader().open()
    except GpuUnavailable as error:
        pytest.skip(error.problem.sentence)


def nvidia_smi(*fields: str) -> list[list[str]]:
    """One row of fields a GPU."""
    program = shutil.which("nvidia-smi")
    if program is None:
        pytest.skip("no nvidia-smi to compare with")
    query = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    output = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout
    return [[cell.strip() for cell in line.split(",")] for line in output.splitlines()]


def test_gpus_are_described_as_nvidia_smi_describes_them(tmp_path: Path):
    inventory = read_inventory(tmp_path)
    rows = nvidia_smi("name", "uuid", "compute_cap", "driver_version", "memory.total")
    assert len(inventory.gpus) == len(rows)
    for gpu, (name, uuid, capability, driver, memory_mib) in zip(inventory.gpus, rows, strict=True):
        assert (gpu.name, gpu.uuid, inventory.driver_version) == (name, uuid, driver)
        assert gpu.capability == tuple(map(int, capability.split(".")))
        if memory_mib.isdigit():
            assert gpu.memory_total_bytes is not None
            assert abs(gpu.memory_total_bytes / MIB - int(memory_mib)) <= 1
        assert {ability.able for ability in gpu.abilities} <= {True, False}


def test_a_sample_has_figures_for_every_gpu(tmp_path: Path):
    sampler = open_sampler(tmp_path)
    assert sampler.wait_ready(60)
    gpus = sampler.sample().gpus
    sampler.close()
    assert len(gpus) == len(nvidia_smi("index"))
    for gpu in gpus:
        assert not gpu.lost
        assert gpu.utilisation_pct is None or 0 <= gpu.utilisation_pct <= 100
        assert (
            gpu.memory_used_bytes is None
            or gpu.memory_total_bytes is None
            or gpu.memory_used_bytes <= gpu.memory_total_bytes
        )
