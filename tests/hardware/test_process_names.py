from __future__ import annotations

from pathlib import Path

import pytest

from tests.hardware.trees import process, write
from tuner_tui.hardware.inventory import GpuProcess
from tuner_tui.hardware.process_names import brief, named, recognised

HOST, CONTAINER = "pid:[4026531836]", "pid:[4026532999]"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    process(tmp_path, 7, ("/venv/bin/python3", "-u", "/home/ann/train.py", "--lr", "1e-5"))
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to(HOST)
    return tmp_path


def test_a_process_is_named_in_full_for_the_report(proc: Path):
    found = named(GpuProcess(7, 5), proc)
    assert (found.pid, found.memory_bytes) == (7, 5)
    assert found.command == "/venv/bin/python3 -u /home/ann/train.py --lr 1e-5"
    assert found.user


def test_and_briefly_for_each_second(proc: Path):
    assert recognised((GpuProcess(7, 5),), proc) == (
        GpuProcess(7, 5, "python train.py", named(GpuProcess(7, 5), proc).user),
    )


def test_one_that_has_ended_keeps_its_pid_and_memory(proc: Path):
    assert recognised((GpuProcess(8, 5),), proc) == (GpuProcess(8, 5, None, None),)


def test_a_hidden_command_line_leaves_the_kernels_name(proc: Path):
    write(proc, {"9/cmdline": "", "9/comm": "nv-hostengine\n"})
    assert named(GpuProcess(9, None), proc).command == "nv-hostengine"


def test_the_hosts_pids_are_not_taken_for_ours(proc: Path):
    (proc / "self/ns/pid").unlink()
    (proc / "self/ns/pid").symlink_to(CONTAINER)
    assert recognised((GpuProcess(7, 5),), proc) is None


def test_an_unknown_list_stays_unknown(proc: Path):
    assert recognised(None, proc) is None
    assert recognised((), proc) == ()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/python3.12 -u train.py --epochs 3", "python train.py"),
        ("python -m ipykernel_launcher -f x.json", "python -m ipykernel_launcher"),
        ("python", "python"),
        ("/usr/lib/xorg/Xorg :0", "Xorg"),
        ("", None),
    ],
)
def test_brief_names(command: str, name: str | None):
    assert brief(command.split()) == name
