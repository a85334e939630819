"""The machine in rows: what is wrong first and short, many GPUs in few lines, the host always in sight."""

from __future__ import annotations

from msgspec.structs import replace

from tests.fakes.live_run import GIB, inventory
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import GpuProcess, Inventory
from tuner_tui.view.cells import plain_text
from tuner_tui.view.hardware_rows import hardware_rows

PYTHON = Interpreter("/opt/bin/python", "3.12.4", {"torch": "2.13.0+cu130"}, torch_cuda="13.0")


def busy(gpus: int) -> Inventory:
    box = inventory(gpus)
    process = GpuProcess(100, 40 * GIB, "python train.py")
    held = tuple(replace(gpu, memory_used_bytes=40 * GIB, processes=(process,)) for gpu in box.gpus)
    return replace(box, gpus=held)


def texts(box: Inventory, python: Interpreter = PYTHON, width: int = 31) -> list[str]:
    return [plain_text(row) for row in hardware_rows(box, python, width)]


def test_few_gpus_in_use_have_a_line_each() -> None:
    shown = texts(busy(2), width=80)
    assert [row.strip() for row in shown if "used by" in row] == [
        "GPU 0: 40.0 GiB used by python train.py (pid 100)",
        "GPU 1: 40.0 GiB used by python train.py (pid 100)",
    ]


def test_eight_gpus_in_use_leave_room_for_the_host() -> None:
    shown = texts(busy(8))
    assert sum("used by" in row for row in shown) == 1
    assert any(row.strip().startswith("8 GPUs: 320.0 GiB") for row in shown)
    assert next(at for at, row in enumerate(shown) if row.startswith("CPU")) < 9


def test_what_is_wrong_with_the_python_stands_first_with_its_advice() -> None:
    shown = texts(inventory(), Interpreter("/opt/bin/python", "3.12.4", {"torch": "2.13.0+cpu"}), 80)
    assert shown[0].startswith("! PyTorch here is CPU-only")
    assert shown[1].startswith("  ")
    lacking = texts(inventory(), Interpreter("/opt/bin/python", "3.12.4", problem="/opt/bin/python has no torch: …"))
    assert lacking[0].startswith("! /opt/bin/python has no torch")


def test_equal_gpus_share_their_abilities_with_the_reason_for_each() -> None:
    shown = texts(inventory(8), width=90)
    assert shown[0] == "8 × NVIDIA H100 80GB HBM3"
    assert sum("bf16" in row for row in shown) == 1
    assert any("torch 2.13.0+cu130" in row for row in shown)


def test_limits_of_the_host_and_of_the_visible_gpus_are_said() -> None:
    box = inventory(8)
    limited = replace(box, cpu=replace(box.cpu, affinity_cores=4, quota_cores=2.5), cuda_visible_devices="3,1")
    shown = texts(limited, width=100)
    assert any("affinity 4 · cgroup quota 2.5" in row for row in shown)
    assert any("CUDA_VISIBLE_DEVICES=3,1: runs started here use GPU 3, 1" in row for row in shown)
    assert "Reading the hardware" in plain_text(hardware_rows(None, None, 40)[0])
