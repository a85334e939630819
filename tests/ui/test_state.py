"""What the screen shows of a run that trains its job: the devices that multiply the batch, and the values it has."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fakes import live_run
from tests.fakes.inventories import box, make_gpu
from tests.fakes.ui_backend import INTERPRETER, FakeBox, opened, running
from tests.runs.builders import record
from tests.ui.pilots import PATIENCE_S, until, value
from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.runs.store.record import RunRecord
from tuner_tui.settings.distributed import AccelerateConfig
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.model import Origin, OriginKind
from tuner_tui.tuning.trial import TuningConclusion
from tuner_tui.ui.followed_run import FollowedRun
from tuner_tui.ui.records import DEMO, JobFacts
from tuner_tui.ui.state import SettingChange, UiState
from tuner_tui.ui.status_text import next_training, status_scene
from tuner_tui.view.settings_form import DataParallel, ValueInEffect

T4 = make_gpu("T4", gib=15.0)
COMMAND = CommandJob(command=("python", "train.py"))


def state(job: Job, ranks: int = 1, **in_effect: object) -> UiState:
    preset = opened()
    view = running(live_run.running(ranks=ranks, in_effect=in_effect))
    record = RunRecord("r", 0.0, job, preset.resolved, (), "/", "/python", "host", "1", "/out")
    return UiState(inventory=box(T4, T4), view=replace(view, record=record))


def devices(state: UiState, job: Job) -> DataParallel:
    return replace(state, loaded=replace(opened(), job=job)).data_parallel


def test_before_its_run_a_command_on_two_gpus_may_be_either() -> None:
    assert devices(UiState(inventory=box(T4, T4)), COMMAND) == DataParallel(perhaps=2)
    assert devices(UiState(inventory=box(T4, T4)), BuiltinJob()) == DataParallel(gpu_count=2)
    assert devices(UiState(inventory=box(T4)), COMMAND) == DataParallel()


def test_its_run_settles_it() -> None:
    assert devices(state(COMMAND, optimizer="SGD"), COMMAND) == DataParallel()
    assert devices(state(COMMAND, optimizer="AdamW", n_gpu=2), COMMAND) == DataParallel(gpu_count=2)
    assert devices(state(COMMAND, ranks=2, optimizer="AdamW", n_gpu=1), COMMAND) == DataParallel(processes=2)


def test_the_run_of_another_job_does_not_count() -> None:
    of_another = state(CommandJob(command=("python", "other.py")), optimizer="SGD")
    assert devices(of_another, COMMAND) == DataParallel(perhaps=2)
    assert devices(state(COMMAND), COMMAND) == DataParallel(perhaps=2)


def test_the_form_differs_once_the_run_is_observed() -> None:
    before = state(COMMAND)
    assert not before.form_differs(replace(before, view=running()))
    assert before.form_differs(replace(before, view=state(COMMAND, optimizer="SGD").view))


def test_the_accelerate_config_counts() -> None:
    job = CommandJob(command=("accelerate", "launch", "train.py"))
    facts = JobFacts(Path("python"), AccelerateConfig(Path("/x.yaml"), "MULTI_GPU", 4, None), {})
    assert devices(UiState(facts=facts), job) == DataParallel(processes=4)
    assert devices(UiState(inventory=box(T4), facts=facts), job) == DataParallel(processes=4)


BATCH = "per_device_train_batch_size"


def following(in_effect: dict[str, Any], job: Job = COMMAND, **values: Any) -> UiState:
    config = replace(opened(None, **values), job=COMMAND)
    record = RunRecord(
        id="r007", created_t=live_run.START_S, job=job, resolved=config.resolved, argv=("python",), cwd="/",
        interpreter="python", host="box", program_version="1", output_dir="/out",
    )  # fmt: skip
    view = replace(running(live_run.running(in_effect=in_effect)), record=record)
    return replace(UiState().with_config(config), view=view)


def shown(state: UiState, name: str = BATCH) -> tuple[Any, str]:
    seen = state.with_seen(UiState())
    assert seen.editing is not None
    current = seen.editing.current
    return getattr(current.settings, name), current.origin(name).kind.value


def test_a_script_that_brings_its_own_batch_shows_it_as_seen() -> None:
    assert shown(following({BATCH: 16})) == (16, "observed")


def test_a_value_that_the_user_gave_is_kept() -> None:
    assert shown(following({BATCH: 16}, per_device_train_batch_size=4)) == (4, "preset")


def test_a_given_value_that_the_run_does_not_use_is_named_until_it_is_edited() -> None:
    state = following({BATCH: 16}, per_device_train_batch_size=4)
    assert state.values_in_effect == {BATCH: ValueInEffect("in effect 16")}
    assert not state.with_edit(BATCH, "8").values_in_effect
    assert not following({BATCH: 16}).values_in_effect, "the command brought it"
    different_job = CommandJob(command=("python", "other.py"))
    assert not following({BATCH: 16}, job=different_job, per_device_train_batch_size=4).values_in_effect


def test_the_values_of_another_job_are_not_taken_over() -> None:
    different_job = CommandJob(command=("python", "other.py"))
    assert shown(following({BATCH: 16}, job=different_job)) == (8, "default")


def test_the_failure_of_a_run_is_said_of_its_own_settings_only() -> None:
    state = following({BATCH: 16})
    assert state.view is not None
    assert state.with_seen(UiState()).failure == ""
    end = live_run.finished("out-of-memory", "").finished
    failed = replace(state.view, state=live_run.running(in_effect={BATCH: 16}, finished=end))
    state = replace(state, view=failed).with_seen(UiState())
    assert state.failure == "ran out of memory"
    assert state.form_differs(replace(state, view=following({BATCH: 16}).view))
    assert state.with_edit(BATCH, "8").failure == ""
    killed = live_run.running(in_effect={BATCH: 16}, finished=live_run.finished("failed", "").finished)
    assert replace(state, view=replace(failed, state=killed)).failure == "", "which says nothing of the memory"


def test_loading_a_preset_can_be_undone_though_nothing_was_changed_since() -> None:
    first = UiState().with_config(opened())
    assert not first.can_undo
    assert first.with_edit(BATCH, "24").can_undo
    loaded = first.with_config(replace(opened(), preset="other"))
    assert (loaded.dirty, loaded.can_undo, loaded.with_undo().can_undo) == (False, True, False)


def test_seen_values_are_neither_a_change_nor_passed_to_the_next_run() -> None:
    state = following({BATCH: 16}).with_seen(UiState())
    assert state.editing is not None
    assert not state.dirty
    assert BATCH not in state.editing.current.given
    assert BATCH not in state.editing.current.chosen


def test_an_edit_starts_at_the_seen_value_and_undo_returns_to_it() -> None:
    state = following({BATCH: 16}).with_seen(UiState()).with_edit(BATCH, "24")
    again = state.with_seen(UiState())
    assert again.editing is not None
    assert again.editing.current.origin(BATCH).kind is OriginKind.EDITED
    undone = again.with_undo()
    assert shown(undone) == (16, "observed")


def test_nothing_is_computed_again_while_nothing_has_changed() -> None:
    state = following({BATCH: 16}).with_seen(UiState())
    assert state.with_seen(state) is state


def test_a_command_shows_the_values_that_it_names_itself_until_its_run_shows_others() -> None:
    config = replace(opened(None), job=COMMAND)
    reading = UiState().with_config(config)
    assert reading.is_reading_values
    assert BATCH in reading.unknown_values
    read = replace(reading, facts=JobFacts(Path("python"), None, {BATCH: 16})).with_seen(reading)
    assert shown(read) == (16, "observed")
    assert not read.is_reading_values
    assert BATCH not in read.unknown_values
    assert "learning_rate" in read.unknown_values


def test_the_default_can_be_chosen_where_the_value_of_the_command_is_not_known() -> None:
    config = replace(opened(None), job=COMMAND)
    state = replace(UiState().with_config(config), facts=JobFacts(Path("python"), None, {}))
    chosen = state.with_edit(BATCH, "8")
    assert (shown(chosen), chosen.dirty) == ((8, "edited"), True)
    assert state.changes_to({BATCH: 8}) == (SettingChange("micro batch", "–", "8"),)


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_is_prefetched_without_workers(workers: int) -> None:
    state = replace(following({"dataloader_num_workers": workers}), folder=Path("/runs/r007")).with_seen(UiState())
    assert ("dataloader_prefetch_factor" in state.unknown_values) == (workers > 0)


def test_a_start_says_how_the_changes_changed_the_effective_batch() -> None:
    state = UiState(inventory=box(T4)).with_config(opened(per_device_train_batch_size=16))
    assert state.batch_note == ""
    assert state.with_edit(BATCH, "32").batch_note == "effective batch 16 → 32"
    kept = state.with_changes({BATCH: 8, "gradient_accumulation_steps": 2}, Origin(OriginKind.REMEDY, "gpu-oom"))
    assert kept.batch_note == ""


def test_no_change_is_said_from_a_value_that_was_never_known() -> None:
    """On another number of processes the values observed before are those of another job."""
    smaller = Remedy("Smaller micro batch", "", change={BATCH: 32})
    finding = Finding("gpu-oom", "failed", "", (), "certain", remedies=(smaller,))
    followed = replace(following({BATCH: 64}), folder=Path("/runs/r007"), inventory=box(T4, T4)).with_seen(UiState())
    assert followed.with_remedy(finding, smaller).batch_note == "effective batch 64 → 32"
    spread = followed.with_job(replace(COMMAND, processes=2, launcher="torchrun"))
    changed = spread.with_remedy(finding, smaller)
    assert BATCH in changed.unknown_before - changed.unknown_values
    assert changed.batch_note == ""
    assert changed.current is not None
    [applied] = changed.current.resolved.last_remedies
    assert applied.before == {BATCH: 64}, "as it was in the run of the finding"


def test_a_remedy_of_the_environment_is_set_in_the_job_and_offered_once() -> None:
    fewer = Remedy("OMP_NUM_THREADS=1", "", env={"OMP_NUM_THREADS": "1"})
    finding = Finding("cpu-contended", "warning", "", (), "certain", remedies=(fewer,))
    facts = JobFacts(Path("python"), None, {})
    before = replace(UiState().with_config(replace(opened(), job=COMMAND)), findings=(finding,), facts=facts)
    assert before.changes_by(fewer) == (SettingChange("OMP_NUM_THREADS", "not set", "1"),)
    after = before.with_remedy(finding, fewer)
    assert after.loaded is not None
    assert after.loaded.job == replace(COMMAND, env={"OMP_NUM_THREADS": "1"})
    assert after.facts is facts  # what the command names itself need not be read again
    assert [each.can_apply for state in (before, after) for each in state.findings_shown[0].remedies] == [True, False]
    built_in = replace(UiState().with_config(opened()), findings=(finding,)).with_remedy(finding, fewer)
    assert built_in.loaded is not None
    assert built_in.loaded.job == replace(opened().job, env={"OMP_NUM_THREADS": "1"})
    assert not built_in.findings_shown[0].remedies[0].can_apply


def test_findings_of_another_training_than_that_of_the_settings_name_their_run() -> None:
    finding = Finding("data-wait", "warning", "Training waits for data", (), "certain")
    seen = replace(record(), id="r004", job=COMMAND)
    ran = UiState(folder=Path("/runs/r004"), view=replace(running(), record=seen), findings=(finding,))
    same, other = (ran.with_config(replace(opened(), job=job)) for job in (COMMAND, BuiltinJob(model="gpt2")))
    assert [state.findings_shown[0].sentence for state in (same, other)] == [
        "Training waits for data", "r004: Training waits for data",
    ]  # fmt: skip
    script = ran.with_config(replace(opened(None), job=CommandJob(command=("python", "wait.py"))))
    assert [next_training(state) for state in (same, script)] == [(), (("t", "train python wait.py"),)]
    assert [status_scene(state).next for state in (same, script)] == ["", "t: train python wait.py"]


def test_a_winner_changes_only_what_a_tuning_may_change() -> None:
    shown = UiState().with_config(opened())
    assert shown.current is not None
    settings = shown.current.resolved.settings
    winner = settings.changed(torch_compile=True, save_strategy="no", learning_rate=1.0)
    remedy = shown.winner_as_remedy("t001", TuningConclusion(winner=winner, sentence="Faster."))
    assert remedy.change == {"torch_compile": True}


def test_a_remedy_of_the_environment_is_recorded_and_taken_back() -> None:
    fewer = Remedy("OMP_NUM_THREADS=1", "", env={"OMP_NUM_THREADS": "1"})
    finding = Finding("cpu-contended", "warning", "", (), "certain", remedies=(fewer,))
    loaded = UiState(folder=Path("/runs/r001")).with_config(replace(opened(), job=COMMAND))
    after = loaded.with_remedy(finding, fewer)
    assert after.current is not None
    [applied] = after.current.resolved.last_remedies
    assert (applied.cause, applied.run, applied.env_before) == ("cpu-contended", "r001", {"OMP_NUM_THREADS": None})
    assert not after.with_job(replace(COMMAND, env={})).current.resolved.last_remedies  # type: ignore[union-attr]
    seen = replace(record(), job=after.current.job, resolved=after.current.resolved)
    ran = replace(after, view=replace(running(), record=seen))
    assert list(map(str, ran.changes_taken_back)) == ["OMP_NUM_THREADS 1 → not set"]
    back = ran.with_remedies_taken_back()
    assert back.current is not None
    assert back.current.job == COMMAND
    assert not back.changes_taken_back


def test_a_change_of_the_job_can_be_undone_after_those_of_the_settings() -> None:
    shown = UiState().with_config(replace(opened(), job=COMMAND)).with_edit("seed", "7")
    quick = replace(COMMAND, env={"OMP_NUM_THREADS": "1"})
    changed = shown.with_job(quick).with_edit("seed", "8")
    jobs = [changed.with_undo(), changed.with_undo().with_undo(), changed.with_undo().with_undo().with_redo()]
    assert [None if each.loaded is None else each.loaded.job for each in jobs] == [quick, COMMAND, quick]
    assert not changed.with_undo().with_undo().job_edited
    assert changed.with_undo().with_undo().editing == shown.editing


def test_a_value_edited_in_the_demo_stays_with_the_demo() -> None:
    demo = UiState().with_config(replace(opened(), preset=DEMO)).with_edit(BATCH, "128")
    other = demo.with_job(COMMAND)
    assert BATCH in other.unknown_values
    again = other.with_undo().current
    assert again is not None
    assert again.resolved.settings.per_device_train_batch_size == 128


def test_the_settings_are_final_once_the_job_was_read() -> None:
    """A command's files and script may give its length, which the start dialog shows."""
    preset = opened()
    read = UiState(inventory=box(T4), interpreter=INTERPRETER).with_config(preset)
    assert not read.ready
    assert replace(read, facts=JobFacts(Path("python"), None, {})).ready


async def test_a_key_before_the_run_is_read_steps_the_value_that_the_run_has() -> None:
    seen, may_read = following({BATCH: 16}), threading.Event()
    assert seen.loaded is not None
    machine = FakeBox(opened=seen.loaded, view=seen.view)
    plain = machine.backend()

    def follow_run(folder: Path) -> FollowedRun:
        may_read.wait(PATIENCE_S)
        return plain.follow_run(folder)

    app = machine.app(machine.backend(follow_run=follow_run))
    app.answer_limit_s = PATIENCE_S
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.main.settings_view is not None)
        pressing = asyncio.create_task(pilot.press("plus"))
        may_read.set()
        await pressing
        await until(pilot, lambda: value(pilot, BATCH) == 24)
