"""The settings in effect: one rule for findings, fallback and tuner."""

from __future__ import annotations

import pytest

from tuner_tui.advice.situation import chosen_settings, effective_settings, observed_precision
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Origin, OriginKind, Resolved, Settings

SEEN = {
    "per_device_train_batch_size": 24, "learning_rate": 3e-4, "optimizer": "AdamW", "autocast_dtype": "bfloat16",
    "dataloader_num_workers": None,
}  # fmt: skip
NONE_CHOSEN: frozenset[str] = frozenset()


def test_a_command_has_the_values_that_were_observed() -> None:
    settings_in_effect = effective_settings(Settings(), NONE_CHOSEN, SEEN)
    assert (
        settings_in_effect.per_device_train_batch_size,
        settings_in_effect.learning_rate,
        settings_in_effect.precision,
    ) == (24, 3e-4, "bf16")
    assert settings_in_effect.dataloader_num_workers == Settings().dataloader_num_workers
    assert settings_in_effect.optim == Settings().optim


@pytest.mark.parametrize(
    ("autocast", "weights", "precision"),
    [("none", "float16", "fp16"), ("none", "float64", "float64"), ("bfloat16", "float32", "bf16"), (None, "x", None)],
)
def test_precision_is_that_of_autocast_or_else_of_the_weights(
    autocast: str | None, weights: str, precision: str | None
) -> None:
    assert observed_precision({"autocast_dtype": autocast, "parameter_dtype": weights}) == precision


def test_without_workers_nothing_is_prefetched() -> None:
    given = Settings(dataloader_num_workers=4, dataloader_prefetch_factor=4, dataloader_persistent_workers=True)
    settings_in_effect = effective_settings(given, NONE_CHOSEN, {"dataloader_num_workers": 0})
    assert (settings_in_effect.dataloader_prefetch_factor, settings_in_effect.dataloader_persistent_workers) == (
        None,
        False,
    )


def test_values_that_a_setting_cannot_have_are_ignored() -> None:
    seen = {
        "learning_rate": 1e30, "per_device_train_batch_size": 0, "gradient_accumulation_steps": True,
        "attn_implementation": "own", "autocast_dtype": "float8",
    }  # fmt: skip
    assert effective_settings(Settings(), NONE_CHOSEN, seen) == Settings()


def test_chosen_settings_keep_their_value() -> None:
    origins = {"per_device_train_batch_size": Origin(OriginKind.FLAG, "")}
    resolved = Resolved(Settings(per_device_train_batch_size=8), origins)
    chosen = chosen_settings(resolved, CommandJob(command=("python", "train.py")))
    assert chosen == frozenset({"per_device_train_batch_size"})
    assert effective_settings(resolved.settings, chosen, SEEN).per_device_train_batch_size == 8


def test_the_built_in_job_has_what_it_was_given() -> None:
    chosen = chosen_settings(Resolved(Settings()), BuiltinJob())
    assert effective_settings(Settings(), chosen, SEEN) == Settings()
