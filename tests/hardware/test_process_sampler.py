from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fakes.gpu_reader import Clock
from tests.fakes.procfs import write_process, write_tree
from tuner_tui.core.procfs import PAGE_BYTES, TICKS_PER_S
from tuner_tui.hardware.processes import RESCAN_EVERY, ProcessSampler

TRAIN = ("/venv/bin/python", "train.py")
SPAWN = (
    "/venv/bin/python",
    "-c",
    "from multiprocessing.spawn import spawn_main; spawn_main(pipe_handle=9)",
    "--multiprocessing-fork",
)
FORKSERVER = ("/venv/bin/python", "-c", "from multiprocessing.forkserver import main; main(5, 6)")
TRACKER = ("/venv/bin/python", "-c", "from multiprocessing.resource_tracker import main;main(7)")
COMPILER = ("/venv/bin/python", "/venv/lib/torch/_inductor/compile_worker/__main__.py", "--workers=8")


def roles(proc: Path, *roots: int) -> dict[int, str]:
    return {sample.pid: sample.role for sample in ProcessSampler(Clock(), proc).sample(roots)}


def test_forked_loader_workers_of_a_plain_script(tmp_path: Path):
    write_process(tmp_path, 10, TRAIN, children=[11, 12])
    write_process(tmp_path, 11, TRAIN, ppid=10)
    write_process(tmp_path, 12, TRAIN, ppid=10)
    assert roles(tmp_path, 10) == {10: "main", 11: "worker", 12: "worker"}


def test_loader_workers_by_the_name_torch_gives_them(tmp_path: Path):
    write_process(tmp_path, 10, TRAIN, children=[11])
    write_process(tmp_path, 11, ("renamed by setproctitle",), ppid=10, comm="pt_data_worker")
    assert roles(tmp_path, 10)[11] == "worker"


@pytest.mark.parametrize("rank", ["²", "9" * 5000, "-1", ""])
def test_a_rank_that_is_no_number(tmp_path: Path, rank: str):
    write_process(tmp_path, 1, TRAIN, environ={"RANK": rank})
    assert [sample.rank for sample in ProcessSampler(Clock(), tmp_path).sample([1])] == [None]


def test_ranks_of_torchrun_and_their_spawned_workers(tmp_path: Path):
    write_process(tmp_path, 1, ("bash", "train.sh"), comm="bash", children=[2])
    write_process(
        tmp_path,
        2,
        ("/venv/bin/python", "/venv/bin/torchrun", "--nproc-per-node=2", "train.py"),
        ppid=1,
        children=[20, 10],
    )
    write_process(tmp_path, 10, TRAIN, ppid=2, children=[11, 12], environ={"RANK": "1", "LOCAL_RANK": "1"})
    write_process(tmp_path, 11, SPAWN, ppid=10)
    write_process(tmp_path, 12, TRACKER, ppid=10)
    write_process(tmp_path, 20, TRAIN, ppid=2, environ={"RANK": "0"})
    samples = ProcessSampler(Clock(), tmp_path).sample([1])
    assert [(sample.pid, sample.role, sample.rank) for sample in samples] == [
        (20, "main", 0),
        (10, "main", 1),
        (11, "worker", 1),
        (1, "other", None),
        (2, "other", None),
        (12, "other", 1),
    ]


@pytest.mark.parametrize(
    "launcher",
    [
        ("/venv/bin/python", "-m", "accelerate.commands.launch", "train.py"),
        ("/venv/bin/python3.11", "-u", "/venv/bin/accelerate", "launch", "train.py"),
        ("/usr/bin/uv", "run", "python", "train.py"),
        ("/venv/bin/python", "/opt/conda/bin/conda", "run", "python", "train.py"),
        ("sh", "-c", "python train.py"),
    ],
)
def test_the_trainer_is_the_first_python_below_launchers(tmp_path: Path, launcher: tuple[str, ...]):
    write_process(tmp_path, 1, launcher, children=[2])
    write_process(tmp_path, 2, TRAIN, ppid=1)
    assert roles(tmp_path, 1) == {1: "other", 2: "main"}


def test_workers_behind_a_fork_server(tmp_path: Path):
    write_process(tmp_path, 10, TRAIN, children=[11])
    write_process(tmp_path, 11, FORKSERVER, ppid=10, children=[12])
    write_process(tmp_path, 12, FORKSERVER, ppid=11)
    assert roles(tmp_path, 10) == {10: "main", 11: "other", 12: "worker"}


def test_what_a_trainer_starts_beside_its_loader_is_other(tmp_path: Path):
    write_process(tmp_path, 10, TRAIN, children=[11, 12, 13])
    write_process(tmp_path, 11, COMPILER, ppid=10, children=[14])
    write_process(tmp_path, 12, ("/venv/bin/wandb-core", "--port"), ppid=10, comm="wandb-core")
    write_process(tmp_path, 13, ("/venv/bin/python", "evaluate.py"), ppid=10)
    write_process(tmp_path, 14, COMPILER, ppid=11)
    assert roles(tmp_path, 10) == {10: "main", 11: "other", 12: "other", 13: "other", 14: "other"}


def test_without_the_kernels_lists_children_are_found_by_their_parents(tmp_path: Path):
    write_process(tmp_path, 10, TRAIN, children=None)
    write_process(tmp_path, 11, TRAIN, ppid=10, children=None)
    write_process(tmp_path, 99, TRAIN, ppid=1, children=None)
    assert roles(tmp_path, 10) == {10: "main", 11: "worker"}


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
    write_process(tmp_path, 10, TRAIN, children=[11, 12])
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
    assert (sample.cpu_queue_pct, sample.could_run) == (None, False)


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
    write_process(tmp_path, 10, TRAIN, children=[11])
    write_process(tmp_path, 11, TRAIN, ppid=10)
    assert len(meter.sample([10])) == 2
    write_tree(tmp_path, {"11/stat": "11 (python) Z 10 0"})
    assert len(meter.sample([10])) == 1
    write_process(tmp_path, 10, TRAIN, children=[12, 13])
    write_process(tmp_path, 12, TRAIN, ppid=10)
    write_process(tmp_path, 13, TRAIN, ppid=10)
    counts = [len(meter.sample([10])) for _ in range(RESCAN_EVERY)]
    assert counts[-1] == 3


def test_names_with_brackets_and_blanks_are_read(tmp_path: Path):
    write_process(tmp_path, 10, TRAIN, comm="py) R 1 (thon")
    assert roles(tmp_path, 10) == {10: "main"}


def test_this_very_process_on_the_real_proc():
    sample = ProcessSampler(Clock()).sample([os.getpid()])[0]
    assert sample.pid == os.getpid()
    assert sample.rss_bytes is not None
    assert sample.rss_bytes > 2**20
