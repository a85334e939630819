"""What multiplies the micro batch: config by the job before its run, and by the run once it trains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.fakes import live_run
from tests.fakes.inventories import box, card
from tests.fakes.ui_backend import opened, running
from tuner_tui.runs.store.record import RunRecord
from tuner_tui.settings.distributed import AccelerateConfig
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.ui.state import UiState
from tuner_tui.view.settings_form import DataParallel

T4 = card("T4", gib=15.0)
COMMAND = CommandJob(command=("python", "train.py"))


def state(job: Job, ranks: int = 1, **in_effect: object) -> UiState:
    preset = opened()
    view = running(live_run.running(ranks=ranks, in_effect=in_effect))
    record = RunRecord("r", 0.0, job, preset.resolved, (), "/", "/python", "host", "1", "/out")
    return UiState(inventory=box(T4, T4), view=replace(view, record=record))


def shown(state: UiState, job: Job) -> DataParallel:
    return replace(state, loaded=replace(opened(), job=job)).data_parallel


def test_before_its_run_a_command_on_two_cards_may_be_either() -> None:
    assert shown(UiState(inventory=box(T4, T4)), COMMAND) == DataParallel(perhaps=2)
    assert shown(UiState(inventory=box(T4, T4)), BuiltinJob()) == DataParallel(cards=2)
    assert shown(UiState(inventory=box(T4)), COMMAND) == DataParallel()


def test_its_run_settles_it() -> None:
    assert shown(state(COMMAND, optimizer="SGD"), COMMAND) == DataParallel()
    assert shown(state(COMMAND, optimizer="AdamW", n_gpu=2), COMMAND) == DataParallel(cards=2)
    assert shown(state(COMMAND, ranks=2, optimizer="AdamW", n_gpu=1), COMMAND) == DataParallel(processes=2)


def test_the_run_of_another_job_does_not_count() -> None:
    of_another = state(CommandJob(command=("python", "other.py")), optimizer="SGD")
    assert shown(of_another, COMMAND) == DataParallel(perhaps=2)
    assert shown(state(COMMAND), COMMAND) == DataParallel(perhaps=2)


def test_the_form_differs_once_the_run_is_observed() -> None:
    before = state(COMMAND)
    assert not before.form_differs(replace(before, view=running()))
    assert before.form_differs(replace(before, view=state(COMMAND, optimizer="SGD").view))


def test_the_accelerate_config_counts() -> None:
    job = CommandJob(command=("accelerate", "launch", "train.py"))
    config = AccelerateConfig(Path("/x.yaml"), "MULTI_GPU", 4, None)
    assert shown(UiState(accelerate=config), job) == DataParallel(processes=4)
    assert shown(UiState(inventory=box(T4), accelerate=config), job) == DataParallel(processes=4)
