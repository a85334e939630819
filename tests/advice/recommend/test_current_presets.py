"""The presets for what is trained today: each fits its GPU by our own estimate, and can be started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.inventories import box, make_gpu, python
from tuner_tui.advice.estimate import JobMemoryEstimator
from tuner_tui.advice.recommend.recommendation import with_recommended
from tuner_tui.advice.recommend.target import target_of
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.memory.job_task import modelled_job
from tuner_tui.runs.launch.prepare import build_request, launch_summary, missing_path_problem, prepare
from tuner_tui.settings.job import TEXT_TASKS, BuiltinJob, CommandJob
from tuner_tui.settings.preset_file import Preset, is_measured
from tuner_tui.settings.presets import find_preset, shipped_folder
from tuner_tui.settings.resolve import LaunchOptions, resolve
from tuner_tui.settings.rules import find_problems

T4, RTX3070, RTX3090, RTX4080 = (
    make_gpu("T4", gib=15.0),
    make_gpu("RTX 3070"),
    make_gpu("RTX 3090"),
    make_gpu("RTX 4080"),
)
A6000, A100 = make_gpu("RTX A6000"), make_gpu("A100", gib=79.2)
HARDWARE: dict[str, tuple[Gpu, ...]] = {
    "qlora-8b-16gb": (RTX4080,), "qlora-8b-24gb": (RTX3090,), "qlora-8b-48gb": (A6000,), "lora-8b-24gb": (RTX3090,),
    "lora-8b-80gb": (A100,), "full-1b-24gb": (RTX3090,), "modernbert-16gb": (RTX4080,), "deberta-8gb": (RTX3070,),
    "full-8b-8x80gb": tuple(make_gpu("H100", index, gib=79.2) for index in range(8)), "vit-8gb": (RTX3070,),
    "whisper-small-16gb": (T4,), "embedding-8gb": (RTX3070,), "dpo-lora-0.5b-16gb": (T4,),
}  # fmt: skip
PYTHON = python(bitsandbytes="0.49.0", trl="1.16.0")


def preset(name: str) -> Preset:
    return find_preset(name, (shipped_folder(),)).preset


def test_every_preset_without_measured_figures_is_in_the_table() -> None:
    shipped = {path.stem for path in shipped_folder().glob("*.yaml")} - {"cpu", "demo"}
    assert set(HARDWARE) == {name for name in shipped if not is_measured(preset(name))}


@pytest.mark.parametrize(("name", "gpus"), HARDWARE.items(), ids=list(HARDWARE))
def test_a_preset_suits_its_hardware_and_fits_by_our_estimate_or_says_that_there_is_none(
    name: str, gpus: tuple[Gpu, ...]
) -> None:
    loaded = preset(name)
    assert loaded.for_ is not None
    assert loaded.job is not None
    assert loaded.for_.suits(gpus, 16)
    resolved = with_recommended(resolve(preset=loaded), box(*gpus), PYTHON, loaded.job)
    assert find_problems(resolved.settings, gpus=gpus, interpreter=PYTHON, job=loaded.job, cores=16) == ()
    job = modelled_job(loaded.job)
    if job is None:
        assert "The memory model " in " ".join((loaded.about or "").split())
        return
    target = target_of(box(*gpus), PYTHON, loaded.job)
    estimator = JobMemoryEstimator(job, target.device, target.processes, sharding=target.sharding)
    estimate = estimator.at_once(resolved.settings)
    if estimate is None:
        assert job.task not in TEXT_TASKS, "others are traced when they are asked for"
        return
    assert estimate.verdict == "fits"


@pytest.mark.parametrize("name", HARDWARE)
def test_a_preset_can_be_started(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = preset(name).job
    if isinstance(job, BuiltinJob):
        assert missing_path_problem(job, tmp_path) is None
        return
    assert isinstance(job, CommandJob)
    program = tmp_path / job.command[0]
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for word in job.command:
        if word.endswith(".py"):
            (tmp_path / word).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    summary = dict(launch_summary(prepare(build_request(LaunchOptions(name, {}, {})), PYTHON)))
    assert summary["Command"].startswith(f"{job.command[0]} ")
    assert "Not applied" not in summary
