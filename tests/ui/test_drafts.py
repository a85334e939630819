"""Unsaved changes are there the next time, unless the settings were changed elsewhere meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.fakes.ui_backend import FakeBox, opened
from tests.ui.pilots import app_of, notes, on_screen, press_until, until, value
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.model import AppliedRemedy, Origin, OriginKind, Resolved, Settings
from tuner_tui.ui.backend import Backend
from tuner_tui.ui.drafts import JOB, UnsavedValue, draft_of, job_of, restorable, with_job

BATCH, RATE = "per_device_train_batch_size", "learning_rate"


def given(kind: OriginKind = OriginKind.PRESET, **values: float) -> Resolved:
    return Resolved(Settings().changed(**values), dict.fromkeys(values, Origin(kind, "p")))


def test_what_was_changed_is_a_draft_and_comes_back() -> None:
    saved = given(per_device_train_batch_size=16)
    draft = draft_of(given(OriginKind.EDITED, per_device_train_batch_size=32, learning_rate=1e-4), saved)
    assert draft == {BATCH: UnsavedValue("32", "16"), RATE: UnsavedValue("1.0e-04")}
    assert restorable(draft, saved) == ({BATCH: 32, RATE: 1e-4}, ())
    assert draft_of(saved, saved) == {}


@pytest.mark.parametrize(
    "loaded",
    [given(per_device_train_batch_size=8), given(OriginKind.FLAG, per_device_train_batch_size=16), given()],
    ids=["the file changed", "a flag", "no longer in the file"],
)
def test_what_was_changed_elsewhere_meanwhile_stays(loaded: Resolved) -> None:
    assert restorable({BATCH: UnsavedValue("32", "16")}, loaded) == ({}, (BATCH,))


def test_a_draft_that_the_file_has_meanwhile_is_done_and_a_bad_one_is_left() -> None:
    assert restorable({BATCH: UnsavedValue("32", "16")}, given(per_device_train_batch_size=32)) == ({}, ())
    assert restorable({BATCH: UnsavedValue("many")}, given()) == ({}, (BATCH,))


def test_a_draft_is_of_one_folder_and_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    backend, config = Backend(), opened()
    backend.keep_draft(config, {BATCH: UnsavedValue("32")})
    assert backend.read_draft(config) == {BATCH: UnsavedValue("32")}
    assert backend.read_draft(replace(config, job=CommandJob(command=("python", "x.py")))) == {}
    file = next((tmp_path / "state" / "drafts").iterdir())
    file.write_text(f'{{"{BATCH}": ["32", "16"]}}')  # of an earlier release
    assert backend.read_draft(config) == {BATCH: UnsavedValue("32", "16")}
    file.write_text("[1]")
    assert backend.read_draft(config) == {}
    backend.keep_draft(config, {})
    monkeypatch.chdir("/")
    assert backend.read_draft(config) == {}


async def test_leaving_keeps_the_changes_and_one_key_discards_them() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await press_until(pilot, lambda: value(pilot, BATCH) == 24, "plus")
        await pilot.press("q")
    assert box.draft == {BATCH: UnsavedValue("24", "16")}
    async with on_screen(box) as pilot:
        await until(pilot, lambda: value(pilot, BATCH) == 24)
        assert "Your unsaved changes are back: micro batch 24. u discards them." in notes(pilot)
        await press_until(pilot, lambda: value(pilot, BATCH) == 16, "u")
        await pilot.press("q")
    assert box.draft == {}


async def test_a_change_is_kept_without_leaving() -> None:
    """A terminal that is closed leaves no time for it."""
    box = FakeBox()
    async with on_screen(box) as pilot:
        await press_until(pilot, lambda: value(pilot, BATCH) == 24, "plus")
        await until(pilot, lambda: box.draft == {BATCH: UnsavedValue("24", "16")})


async def test_an_edited_job_comes_back_before_the_values_that_were_changed_in_it() -> None:
    box = FakeBox(opened=opened("demo", gradient_accumulation_steps=4))
    edited = CommandJob(command=("python", "x.py"), env={"A": "1"})
    box.draft = dict(with_job({"gradient_accumulation_steps": UnsavedValue("8")}, edited))
    async with on_screen(box) as pilot:
        await until(pilot, lambda: "Your unsaved changes of the job are back: command, environment" in notes(pilot))
        loaded = app_of(pilot).session.state.loaded
        assert loaded is not None
        assert loaded.job == edited
        assert value(pilot, "gradient_accumulation_steps") == 8
        await pilot.press("q")
    assert job_of(box.draft) == edited


@pytest.mark.parametrize(
    "job",
    [BuiltinJob(model="gpt2", task="causal-lm"), CommandJob(command=("python", "x.py"), env={"A": "b"})],
)
def test_a_job_is_read_as_it_was_written(job: Job) -> None:
    assert job_of(with_job({}, job)) == job
    assert restorable(with_job({}, job), given()) == ({}, ())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "builtin", "task": "cooking"}', '{"kind": "other"}'])
def test_a_job_that_cannot_be_read_is_left(text: str) -> None:
    assert job_of({JOB: UnsavedValue(text)}) is None


def test_a_job_with_a_secret_is_not_stored() -> None:
    secret = CommandJob(command=("python", "x.py", "--hf_token", "hf_" + "a1B2" * 9))
    assert with_job({}, secret) == {}


async def test_a_screen_without_changes_leaves_the_draft_of_another_alone() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        box.draft = {BATCH: UnsavedValue("64", "16")}  # another screen was left meanwhile
        await pilot.press("q")
    assert box.draft == {BATCH: UnsavedValue("64", "16")}


async def test_what_a_remedy_has_set_is_its_own_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is judged by what it promised, and has looked at more than the rule for workers and cores."""
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path))
    workers = "dataloader_num_workers"
    remedy = AppliedRemedy("more-workers", "workers 0 → 16", "data-wait", "r001", {workers: 0}, (1.1, 16.5))
    box = FakeBox()
    async with on_screen(box) as pilot:
        store = app_of(pilot).session._store
        store.update(store.state.with_changes({workers: 400}, Origin(OriginKind.REMEDY, "since r001", remedy)))
        await pilot.press("q")
    Backend().keep_draft(opened(), box.draft)
    box.draft = Backend().read_draft(opened())
    async with on_screen(box) as pilot:
        await until(pilot, lambda: value(pilot, workers) == 400)
        current = app_of(pilot).session.state.current
        assert current is not None
        origin = current.resolved.origin(workers)
        assert (origin.kind, origin.remedy) == (OriginKind.REMEDY, remedy)
        view = app_of(pilot).main.settings_view
        assert view is not None
        assert not any(workers in problem.fields for problem in view.problems)
        await press_until(pilot, lambda: value(pilot, workers) != 400, "u")
