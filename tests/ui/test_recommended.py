"""What is recommended for the box on the screen: it fills in, gives its reason, and follows what somebody chooses."""

from __future__ import annotations

from dataclasses import replace

from tests.ui.fakes import INTERPRETER, FakeBox, opened
from tests.ui.pilots import app_of, on_screen, until, value
from tuner_tui.advice.recommend.recommendation import with_recommended
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.origin import OriginKind
from tuner_tui.settings.presets.library import preset_path
from tuner_tui.settings.presets.parser import load_preset
from tuner_tui.ui.messages import SettingEdited
from tuner_tui.ui.services import Services
from tuner_tui.ui.wiring import Wishes, real_services

WORKERS, PREFETCH, PERSISTENT = "dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_persistent_workers"


def advising(box: FakeBox) -> Services:
    return box.services(recommended=with_recommended)


async def test_what_nobody_chose_is_recommended_with_its_reason() -> None:
    box = FakeBox(opened=opened(per_device_train_batch_size=24))
    async with on_screen(box, services=advising(box)) as pilot:
        await until(pilot, lambda: value(pilot, "precision") == "bf16")
        editing = app_of(pilot).state.editing
        assert editing is not None
        origin = editing.current.origin("precision")
        assert origin.kind is OriginKind.RECOMMENDED
        assert "bf16 tensor cores" in origin.detail
        assert value(pilot, "per_device_train_batch_size") == 24
        assert not editing.dirty


async def test_it_follows_what_is_chosen_and_comes_back_with_undo() -> None:
    box = FakeBox(opened=opened())
    async with on_screen(box, services=advising(box)) as pilot:
        await until(pilot, lambda: value(pilot, PERSISTENT) is True)
        before = value(pilot, PREFETCH)
        app_of(pilot).post_message(SettingEdited(WORKERS, "0"))
        await until(pilot, lambda: value(pilot, WORKERS) == 0)
        assert (value(pilot, PREFETCH), value(pilot, PERSISTENT)) == (None, False)
        app_of(pilot).on_undo_wanted()
        await until(pilot, lambda: value(pilot, PERSISTENT) is True)
        assert value(pilot, PREFETCH) == before


async def test_a_command_and_the_settings_of_a_run_stay_as_they_are() -> None:
    command = replace(opened(), job=CommandJob(command=("python", "train.py")))
    for as_it_is in (command, replace(opened(), as_it_ran=True)):
        box = FakeBox(opened=as_it_is)
        async with on_screen(box, services=advising(box)) as pilot:
            editing = app_of(pilot).state.editing
            assert editing is not None
            assert editing.current == as_it_is.resolved


def test_a_preset_saved_here_holds_only_what_somebody_chose() -> None:
    box = FakeBox()
    chosen = opened("mine", learning_rate=1e-5)
    filled = with_recommended(chosen.resolved, box.inventory, INTERPRETER, chosen.job)
    real_services(Wishes()).save_preset("mine-alone", replace(chosen, resolved=filled), False)
    assert load_preset(preset_path("mine-alone")).preset.settings == {"learning_rate": 1e-5}
