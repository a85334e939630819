from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.gpu_reader import Clock
from tests.fakes.procfs import write_process, write_tree
from tuner_tui.core.files import read_data_file
from tuner_tui.core.procfs import PAGE_BYTES, TICKS_PER_S
from tuner_tui.hardware.process_sampler import RESCAN_EVERY, ProcessSampler

TRAIN = ("/venv/bin/python", "train.py")
TREES = read_data_file(Path(__file__).with_name("processes.yaml"))


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree["name"])
def test_roles_and_ranks(tmp_path: Path, tree: dict[int | str, list[Any]]):
    """Trainers come first, by rank, then workers, then others."""
    rows = {int(pid): row for pid, row in tree.items() if pid != "name"}
    for pid, (parent, role, command, *more) in rows.items():
        environ = {"RANK": str(more[1])} if role == "main" and len(more) > 1 else {}
        comm = more[0] if more else "python"
        write_process(tmp_path, pid, shlex.split(command), ppid=parent, comm=comm, environ=environ)
    samples = ProcessSampler(Clock(), tmp_path).sample([min(rows)])
    assert {sample.pid: sample.role for sample in samples} == {pid: row[1] for pid, row in rows.items()}
    assert {sample.pid: sample.rank for sample in samples} == {
        pid: dict(enumerate(row)).get(4) for pid, row in rows.items()
    }
    order = [(["main", "worker", "other"].index(sample.role), sample.rank or 0, sample.pid) for sample in samples]
    assert order == sorted(order)


@pytest.mark.parametrize("rank", ["²", "9" * 5000, "-1", ""])
def test_a_rank_that_is_no_number(tmp_path: Path, rank: str):
    write_process(tmp_path, 1, TRAIN, environ={"RANK": rank})
    assert [sample.rank for sample in ProcessSampler(Clock(), tmp_path).sample([1])] == [None]


def test_cpu_of_one_core_and_memory(tmp_path: Path):
    clock = Clock()
    meter = ProcessSampler(clock, tmp_path)
    write_process(tmp_path, 10, TRAIN, ticks=0, pages=3)
    assert meter.sample([10])[0].cpu_pct is None
    write_process(tmp_path, 10, TRAIN, ticks=6 * TICKS_PER_S, pages=5)
    clock.now_s += 2
    sample = meter.sample([10])[0]
    assert sample.cpu_pct == 300.0
    assert sample.rss_bytes == 5 * PAGE_BYTES


def test_the_queue_for_a_core_is_a_trainers_and_its_workers(tmp_path: Path):
    clock = Clock()
    write_process(tmp_path, 10, TRAIN)
    write_process(tmp_path, 11, TRAIN, ppid=10)
    write_process(tmp_path, 12, ("wandb-core",), ppid=10)
    for pid in ("10", "11", "12"):
        write_tree(tmp_path / pid, {"schedstat": "1000000000 500000000 40\n"})
    meter = ProcessSampler(clock, tmp_path)
    assert [sample.cpu_queue_pct for sample in meter.sample([10])] == [None, None, None]
    clock.now_s += 2.0
    write_tree(tmp_path / "10", {"schedstat": "1400000000 1700000000 90\n"})
    assert [sample.cpu_queue_pct for sample in meter.sample([10])] == [pytest.approx(60.0), 0.0, None]


@pytest.mark.parametrize("text", ["0 0 0\n", "", "1 2\n", "a b c\n"])
def test_a_kernel_that_does_not_count_the_queue_leaves_it_unknown(tmp_path: Path, text: str):
    clock = Clock()
    write_process(tmp_path, 10, TRAIN)
    write_tree(tmp_path / "10", {"schedstat": text})
    meter = ProcessSampler(clock, tmp_path)
    meter.sample([10])
    clock.now_s += 1.0
    sample = meter.sample([10])[0]
    assert (sample.cpu_queue_pct, sample.state) == (None, "S")


def test_a_recycled_pid_starts_afresh(tmp_path: Path):
    clock = Clock()
    meter = ProcessSampler(clock, tmp_path)
    write_process(tmp_path, 10, TRAIN, ticks=500, started=1)
    meter.sample([10])
    write_process(tmp_path, 10, TRAIN, ticks=2, started=2)
    clock.now_s += 1
    assert meter.sample([10])[0].cpu_pct is None


def test_newcomers_show_at_the_next_look_and_the_ended_go_at_once(tmp_path: Path):
    clock = Clock()
    meter = ProcessSampler(clock, tmp_path)
    write_process(tmp_path, 10, TRAIN)
    write_process(tmp_path, 11, TRAIN, ppid=10)
    assert len(meter.sample([10])) == 2
    write_tree(tmp_path, {"11/stat": "11 (python) Z 10 0"})
    assert len(meter.sample([10])) == 1
    write_process(tmp_path, 10, TRAIN)
    write_process(tmp_path, 12, TRAIN, ppid=10)
    write_process(tmp_path, 13, TRAIN, ppid=10)
    counts = [len(meter.sample([10])) for _ in range(RESCAN_EVERY)]
    assert counts[-1] == 3


def test_this_very_process_on_the_real_proc():
    sample = ProcessSampler(Clock()).sample([os.getpid()])[0]
    assert sample.pid == os.getpid()
    assert sample.rss_bytes is not None
    assert sample.rss_bytes > 2**20
