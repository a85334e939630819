from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.procfs import write_process, write_tree
from tuner_tui.hardware.inventory import GpuProcess
from tuner_tui.hardware.processes import brief_command, identify_gpu_processes, with_command_line

HOST, CONTAINER = "pid:[4026531836]", "pid:[4026532999]"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    write_process(tmp_path, 7, ("/venv/bin/python3", "-u", "/home/ann/train.py", "--lr", "1e-5"))
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to(HOST)
    return tmp_path


def test_a_process_is_named_in_full_for_the_report(proc: Path):
    named = with_command_line(GpuProcess(7, 5), proc)
    assert (named.pid, named.memory_bytes) == (7, 5)
    assert named.command == "/venv/bin/python3 -u /home/ann/train.py --lr 1e-5"
    assert named.user


def test_and_briefly_for_each_second(proc: Path):
    assert identify_gpu_processes((GpuProcess(7, 5),), proc) == (
        GpuProcess(7, 5, "python train.py", with_command_line(GpuProcess(7, 5), proc).user),
    )


def test_one_that_has_ended_keeps_its_pid_and_memory(proc: Path):
    assert identify_gpu_processes((GpuProcess(8, 5),), proc) == (GpuProcess(8, 5, None, None),)


def test_a_hidden_command_line_leaves_the_kernels_name(proc: Path):
    write_tree(proc, {"9/cmdline": "", "9/comm": "nv-hostengine\n"})
    assert with_command_line(GpuProcess(9, None), proc).command == "nv-hostengine"


def test_the_hosts_pids_are_not_taken_for_ours(proc: Path):
    (proc / "self/ns/pid").unlink()
    (proc / "self/ns/pid").symlink_to(CONTAINER)
    assert identify_gpu_processes((GpuProcess(7, 5),), proc) is None


def test_an_unknown_list_stays_unknown(proc: Path):
    assert identify_gpu_processes(None, proc) is None
    assert identify_gpu_processes((), proc) == ()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/python3.12 -u train.py --epochs 3", "python train.py"),
        ("python -m ipykernel_launcher -f x.json", "python -m ipykernel_launcher"),
        ("python3 -u -c import\x00os;os.fork()".replace("\x00", "_"), "python -c"),
        ("python", "python"),
        ("/usr/lib/xorg/Xorg :0", "Xorg"),
        ("", None),
    ],
)
def test_brief_names(command: str, name: str | None):
    assert brief_command(command.split()) == name
