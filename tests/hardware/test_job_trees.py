"""From process tables to jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner_tui.core.child_guard import COMM
from tuner_tui.core.files import read_data_file
from tuner_tui.hardware.host_jobs import find_jobs, looks_like_training
from tuner_tui.hardware.process_table import HostProcess

PYTHON = "/env/bin/python"
TABLES = read_data_file(Path(__file__).with_name("jobs.yaml"))


def process(pid: int, parent: int, *command: str, group: int | None = None, torch: bool | None = None) -> HostProcess:
    """A process, by default in its own group; it started in the order of its number."""
    comm = command[0].rpartition("/")[2][:15] if command else "hidden"
    comm = COMM if any("child_guard" in word for word in command) else comm
    group_id = pid if group is None else group
    return HostProcess(pid, parent, group_id, 1, comm, pid, "ann", command, float(pid), torch)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["name"])
def test_jobs(table: dict[str, Any]):
    processes = {1: process(1, 0, "/sbin/init")}
    for pid, (parent, line, *group) in table["processes"].items():
        processes[pid] = process(pid, parent, *line.split(), group=next(iter(group), None))
    jobs = find_jobs(processes, table["seeds"], table.get("launched", ()))
    assert [[member.process.pid for member in job.members] for job in jobs] == table["jobs"]
    roles = [member.role.value for job in jobs for member in job.members]
    assert roles == table.get("roles", roles)
    leads = [job.lead.pid for job in jobs]
    assert leads == table.get("leads", leads)
    assert all(job.root == pids[0] for job, pids in zip(jobs, table["jobs"], strict=True))


@pytest.mark.parametrize(
    ("candidate", "is_training"),
    [
        (process(5, 1, PYTHON, "serve.py", torch=True), True),
        (process(5, 1, PYTHON, "train.py", torch=False), False),
        (process(5, 1, PYTHON, "/home/bob/finetune_lora.py", torch=None), True),
        (process(5, 1, PYTHON, "-m", "torch.distributed.run", "x.py"), True),
        (process(5, 1, PYTHON, "/env/bin/accelerate", "launch", "x.py"), True),
        (process(5, 1, "vim", "train.py"), False),
        (process(5, 1, PYTHON), False),
        (process(5, 1), False),
    ],
)
def test_what_looks_like_a_training(candidate: HostProcess, is_training: bool):
    assert looks_like_training(candidate) is is_training
