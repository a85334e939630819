"""What a launch checks before it starts: local files of the built-in job, memory limits."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.runs.sandbox import Sandbox, wait_ended
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import (
    DATA_SUFFIXES,
    MIN_MEMORY_BYTES,
    LaunchRequest,
    launch_summary,
    memory_limit_problem,
    missing_path_problem,
    prepare,
)
from tuner_tui.runs.launch.start import launch
from tuner_tui.runs.store.folder import create_folder
from tuner_tui.runs.store.record import read_record
from tuner_tui.settings.job import BuiltinJob


@pytest.mark.parametrize("data", ["nofile.csv", "./folder", "/no/such/train.jsonl", "~/no-such-file.parquet"])
def test_data_that_is_plainly_a_path(tmp_path: Path, data: str) -> None:
    problem = missing_path_problem(BuiltinJob(data=data), tmp_path)
    assert problem == f"The data {data} does not exist (looked in {tmp_path})."


def test_a_model_folder(tmp_path: Path) -> None:
    job = BuiltinJob(model="./model")
    assert missing_path_problem(job, tmp_path) == f"The model ./model does not exist (looked in {tmp_path})."
    (tmp_path / "model").mkdir()
    assert missing_path_problem(job, tmp_path) is None


@pytest.mark.parametrize("data", ["stdlib", "org/dataset", "imdb"])
def test_what_may_be_on_the_hub_is_left_alone(tmp_path: Path, data: str) -> None:
    assert missing_path_problem(BuiltinJob(data=data, model="org/model-1.5"), tmp_path) is None


def test_these_are_the_files_that_the_job_reads() -> None:
    source = (Path(__file__).parents[3] / "tuner_tui" / "trainer" / "dataset.py").read_text("utf-8")
    [line] = [line for line in source.splitlines() if line.startswith("READERS = ")]
    assert {word.strip('" {}').partition('"')[0] for word in line.partition("= ")[2].split(",")} == DATA_SUFFIXES


NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def test_the_floor() -> None:
    assert memory_limit_problem(None, NO_GPU) is None
    assert memory_limit_problem(MIN_MEMORY_BYTES, NO_GPU) is None
    assert "300 MiB is too small" in (memory_limit_problem(300 * 2**20, NO_GPU) or "")


def test_the_built_in_job_is_refused_and_a_command_warned_of(box: Sandbox) -> None:
    request = box.request("print(1)", memory_limit_bytes=300 * 2**20)
    request = replace(request, environ={**request.environ, **NO_GPU})
    assert dict(launch_summary(prepare(request)))["Warning"].startswith("The memory limit of 300 MiB is too small")
    with pytest.raises(LaunchError, match="alone needs about"):
        prepare(replace(request, job=BuiltinJob()))


def test_a_prepared_launch_moves_to_the_next_folder_without_another_probe_and_keeps_its_gpus(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = box.request("import os; print(os.environ['TUNER_RUN_DIR'], os.environ['CUDA_VISIBLE_DEVICES'])")
    prepared = prepare(replace(request, visible_gpus="GPU-7"))
    taken = create_folder(prepared.request.runs_root)
    assert taken.path == prepared.folder.path
    monkeypatch.setattr("tuner_tui.runs.launch.prepare.probe_training_python", None)
    folder = launch(prepared)
    box.folders.append(folder)
    assert wait_ended(folder).outcome == "completed"
    assert (folder.id, folder.output_log.read_text()) == ("r002", f"{folder.path} GPU-7\n")
    assert LaunchRequest.resume(folder, read_record(folder)).visible_gpus == "GPU-7", "it resumes on the same GPU"
