"""What a training really has."""

from __future__ import annotations

from tuner_tui.advice.effective_settings import effective_settings
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.origin import Origin, OriginKind, Resolved

SCRIPT = CommandJob(command=("python", "train.py"))
SEEN = {"per_device_train_batch_size": 24, "learning_rate": 3e-4, "optimizer": "AdamW", "dataloader_num_workers": None}


def test_a_script_has_what_was_seen_of_it() -> None:
    found = effective_settings(Resolved(Settings()), SCRIPT, SEEN)
    assert (found.per_device_train_batch_size, found.learning_rate) == (24, 3e-4)
    assert found.dataloader_num_workers == Settings().dataloader_num_workers


def test_what_the_settings_have_no_room_for_is_left_out() -> None:
    seen = {"learning_rate": 1e30, "per_device_train_batch_size": 0, "gradient_accumulation_steps": True}
    assert effective_settings(Resolved(Settings()), SCRIPT, seen) == Settings()


def test_what_was_chosen_stays() -> None:
    chosen = Resolved(
        Settings(per_device_train_batch_size=8), {"per_device_train_batch_size": Origin(OriginKind.FLAG, "")}
    )
    assert effective_settings(chosen, SCRIPT, SEEN).per_device_train_batch_size == 8


def test_the_built_in_job_has_what_it_was_given() -> None:
    assert effective_settings(Resolved(Settings()), BuiltinJob(), SEEN) == Settings()
