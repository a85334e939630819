"""A watched machine as rows: its GPUs and who uses them, its jobs, and the snapshot that is printed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.fakes.watched_box import JOBS, gpuless_view, view
from tuner_tui.view.cells import plain_text
from tuner_tui.view.gpu_rows import format_indices
from tuner_tui.view.watch_rows import (
    JobScene,
    format_command,
    gpus_in_sum,
    gpus_title,
    job_places,
    job_rows,
    jobs_by_gpu,
    snapshot_rows,
    sorted_jobs,
    watched_scene,
)

OPENED = frozenset(job.pid for job in JOBS)


@pytest.mark.parametrize("width", [40, 64, 80, 120, 200])
def test_no_row_is_wider_than_its_place(width: int) -> None:
    for row in job_rows(JobScene(JOBS, view().sample.time_s, opened=OPENED, cursor=(5000, None)), width, 200)[1:]:
        assert len(plain_text(row)) <= width, plain_text(row)


def test_the_cursor_is_always_in_sight() -> None:
    for position in job_places(JOBS, OPENED):
        rows = job_rows(JobScene(JOBS, 0.0, opened=OPENED, cursor=position), 120, 7)
        assert len(rows) == 7
        assert any(f" {position[1] or position[0]} " in plain_text(row) for row in rows)


def test_the_gpus_of_a_job_have_a_column_that_takes_them() -> None:
    job = replace(JOBS[0], pid=245710, gpus=(0, 1, 2, 3, 6, 7))
    assert " 245710  0–3,6,7 " in plain_text(job_rows(JobScene((job,), 0.0), 80, 5)[1])


def test_a_gpu_that_was_not_read_yet_is_unknown_and_not_busy() -> None:
    shown = view()
    silent = replace(shown.sample.gpus[0], name="GPU 0", utilisation_pct=None)
    shown = replace(shown, sample=replace(shown.sample, gpus=(silent, shown.sample.gpus[1])))
    assert gpus_title(shown) == "GPUs · 1 × unknown · 1 × H100 80GB HBM3"
    assert gpus_in_sum(shown, ()).startswith("1 busy, 1 unknown · ")


def test_equal_jobs_keep_their_order_by_age() -> None:
    older, younger = replace(JOBS[-1], pid=1, started_s=1.0), replace(JOBS[-1], pid=2, started_s=2.0)
    assert [job.pid for job in sorted_jobs([younger, older], "memory")] == [1, 2]


def test_each_gpu_names_its_job() -> None:
    jobs = jobs_by_gpu(view())
    assert jobs[0] == "r007 llama-1b-sft"
    assert jobs[4].endswith("finetune.py --config big.yaml")
    assert watched_scene(view(), ()).training == {0, 1, 2, 3}


def test_a_snapshot_has_gpus_host_and_jobs() -> None:
    seen = "\n".join(plain_text(row) for row in snapshot_rows(view(), 120))
    for part in (
        "GPUs · 8 × H100 80GB HBM3", "GPU 4: at its power cap", " 7  ✗ lost 4 min", "RAM", "4, 32 workers",
        "r007 llama-1b-sft  1,240/9,000 · 14 %", "not visible from here", "cpu_train.py",
    ):  # fmt: skip
        assert part in seen
    gpuless = "\n".join(plain_text(row) for row in snapshot_rows(gpuless_view(), 120))
    assert "No NVIDIA driver is installed" in gpuless
    assert "everything works on the CPU" in gpuless


@pytest.mark.parametrize(
    ("gpus", "shown"),
    [((), ""), ((3,), "3"), ((0, 1, 2), "0–2"), ((0, 2, 5), "0,2,5"), ((6, 7), "6,7"), ((0, 1, 2, 3, 6), "0–3,6")],
)
def test_gpu_lists(gpus: tuple[int, ...], shown: str) -> None:
    assert format_indices(gpus, ",") == shown


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (("/usr/bin/python3.11", "-u", "/a/b/train.py", "-x"), "python train.py -x"),
        (("/usr/bin/python3", "/env/bin/torchrun", "--n", "2"), "torchrun --n 2"),
        (("python", "-m", "vllm"), "python -m vllm"),
        (("/opt/bin/trainer", "x\ny"), "trainer x y"),
        (("python",), "python"),
        ((), ""),
    ],
)
def test_brief_commands(command: tuple[str, ...], shown: str) -> None:
    assert format_command(command) == shown
