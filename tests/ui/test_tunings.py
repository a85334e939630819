"""Tunings over this machine: what is planned, listed, read and ended, in real folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.fakes.inventories import box, make_gpu, python
from tests.fakes.tuning_views import GIB, under_way
from tuner_tui.core.file_locks import acquire_lock, wait_unlocked
from tuner_tui.hardware.sample import GpuSample, Sample
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Resolved, Settings
from tuner_tui.tuning.create import create_tuning
from tuner_tui.tuning.store import TUNINGS, TuningFolder, TuningOptions, read_tuning_record
from tuner_tui.tuning.trial_log import TrialCompleted, TrialLog, TuningEnded, TuningStarted
from tuner_tui.ui.feeds import BackendError
from tuner_tui.ui.records import TrainingConfig, TuningPlan, TuningWish
from tuner_tui.ui.tunings import Tunings, resumed_job

SECRET = CommandJob(command=("python", "train.py", "--api-key", "abc"), apply="hf-args", env={"WANDB_API_KEY": "abc"})


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path))


def opened(job: BuiltinJob | CommandJob | None = None) -> TrainingConfig:
    return TrainingConfig(Resolved(Settings(per_device_train_batch_size=8)), job or BuiltinJob(), "demo")


def tuning(job: BuiltinJob | CommandJob | None = None) -> TuningFolder:
    request = LaunchRequest(job=job or BuiltinJob(), resolved=opened().resolved, preset="demo")
    return create_tuning(request, TuningOptions())


def test_a_tuning_whose_creation_was_interrupted_is_not_listed(tmp_path: Path) -> None:
    complete = tuning()
    TUNINGS.create(tmp_path / "tunings")
    assert [*Tunings().list_newest()] == [complete.path]


def test_a_plan_says_what_is_done_and_what_is_saved() -> None:
    plan = Tunings().plan(opened())
    plan_lines = dict(plan.lines)
    assert (plan.least_minutes, "It needs at least 1 min" in plan_lines["Time"]) == (1, True)
    assert "short real runs" in plan_lines["Runs"]
    assert plan_lines["Keeps"].startswith("the effective batch (8")
    assert "demo-tuned" in plan_lines["Saves"]
    assert "trainer" in plan_lines["Command"]


def planned(*figures: GpuSample, torch: str = "2.13.0") -> TuningPlan:
    """The plan of a tuning on GPUs whose newest figures are these."""
    machine = box(*(make_gpu("T4", gpu.index, uuid=f"GPU-{gpu.index}") for gpu in figures))
    return Tunings().plan(opened(), machine, python(torch, "13.0" if torch == "2.13.0" else None), Sample(1.0, figures))


def test_a_plan_offers_the_gpus_that_are_free_in_the_newest_sample_or_says_why_not() -> None:
    free, second, held = GpuSample(0, "T4"), GpuSample(1, "T4"), GpuSample(1, "T4", memory_used_bytes=9 * GIB)
    assert [*planned(free).placements] == ["sequential"], "the machine has one GPU"
    several = planned(free, second)
    assert several.placements == {"sequential": "one after another", "gpus": "one on each of 2 free GPUs"}
    assert several.gpus == ("GPU-0", "GPU-1")
    hung = replace(second, age_s=9.0)
    for taken in (held, hung):  # nobody waits for a driver that does not answer
        plan = planned(free, taken)
        words = "one trial at a time: only one is free"
        assert ([*plan.placements], dict(plan.lines)["GPUs"]) == (["sequential"], words)
    none = dict(planned(replace(free, lost=True), hung).lines)["GPUs"]
    assert none == "one trial at a time. No GPU is free for trials (GPU 0: lost; GPU 1: it does not answer)."
    assert "CPU-only" in dict(planned(free, second, torch="2.13.0+cpu").lines)["GPUs"]


def test_a_plan_offers_the_cluster_that_the_user_has_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ray.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    here = Tunings()
    offered = {"sequential": "one after another", "ray": "on the Ray cluster head:6379"}
    assert here.plan(opened()).placements == offered
    assert [*here.plan(opened(BuiltinJob(launcher="torchrun", processes=2))).placements] == ["sequential"]
    monkeypatch.delenv("RAY_ADDRESS")
    assert [*here.plan(opened()).placements] == ["sequential"]


def test_where_trials_shall_run_is_recorded() -> None:
    nothing = opened(CommandJob(command=("/no/such/program", "train.py"), apply="hf-args"))
    here, records = Tunings(), []
    both = ("GPU-a", "GPU-b")
    for wish in (TuningWish(9.0, "gpus", both), TuningWish(9.0), TuningWish(9.0, "ray")):
        folder = TuningFolder(here.start(nothing, wish))
        records.append(read_tuning_record(folder))
        wait_unlocked(folder.lock)
    assert [(record.gpu_uuids, record.on) for record in records] == [
        (both, None),
        ((), None),
        ((), "ray"),
    ]


def test_a_command_that_no_setting_reaches_is_refused() -> None:
    with pytest.raises(BackendError, match="No setting can be passed"):
        Tunings().plan(opened(CommandJob(command=("python", "train.py"))))


def test_tunings_are_listed_newest_first_and_read_again_and_again() -> None:
    first, second = tuning(), tuning()
    log = TrialLog(first)
    log.add(TuningStarted(t=1.0))
    log.add(TrialCompleted(t=2.0, tried=under_way().tried[0]))
    log.add(TuningEnded(t=3.0, status="aborted", sentence="It was stopped."))
    here = Tunings()
    assert [*here.list_newest()] == [second.path, first.path]
    assert here.list_newest()[first.path].status == "aborted"
    [look] = here.follow(first.path)
    assert (look.view.title, len(look.view.tried), look.now_s) == ("demo", 1, None)
    assert next(here.follow(second.path)).now_s is not None


def test_a_running_tuning_is_watched_until_its_end() -> None:
    seen = Tunings().watch_running()
    assert next(seen) is None
    folder, newer = tuning(), tuning()
    log, lock = TrialLog(folder), acquire_lock(folder.lock)
    log.add(TuningStarted(t=1.0))
    result = next(seen)
    assert result is not None
    assert (result.id, result.status) == (folder.id, "running")
    log.add(TuningEnded(t=3.0, status="finished"))
    os.close(lock)
    for _ in range(2):
        result = next(seen)
        assert result is not None
        assert (result.id, result.status) == (folder.id, "finished")
    assert newer.path.is_dir()


def test_a_resumed_tuning_gets_the_secrets_of_the_job_shown() -> None:
    record = read_tuning_record(tuning(SECRET))
    assert record.job != SECRET
    assert resumed_job(record, opened(SECRET)) == SECRET
    assert resumed_job(record, opened()) == record.job
    assert resumed_job(record, None) == record.job
