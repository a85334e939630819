"""TRL's supervised fine-tuning: a Trainer with arguments of its own, padded and packed batches."""

from __future__ import annotations

import pytest

from tests.observer.observed_process import ObservedProcess, last_steps, settings_in_effect
from tuner_tui.runs.events.types import InEffect, Injected, Metrics, Plan, Steps

pytestmark = [pytest.mark.train, pytest.mark.full]


def test_two_trainings_in_one_process(trl: ObservedProcess) -> None:
    assert trl.exit_code == 0, trl.errors
    assert [(plan.total_steps, plan.first_step) for plan in trl.of(Plan)] == [(3, 0), (3, 0)]
    final = last_steps(trl.events)
    assert (final.step, final.own_steps, final.samples) == (3, 6, 24)
    assert trl.of(Metrics)[-1].loss is not None
    assert "mean_token_accuracy" in trl.of(Metrics)[-1].others, "what TRL logs besides the loss"
    assert 0 < final.data_wait_s < final.train_s


def test_padded_and_packed_batches(trl: ObservedProcess) -> None:
    padded = [event for event in trl.of(Steps) if event.own_steps <= 3][-1]
    assert padded.tokens
    assert padded.padding_tokens
    packed = last_steps(trl.events)
    assert packed.tokens
    assert packed.padding_tokens is not None
    tokens, padding = packed.tokens - padded.tokens, packed.padding_tokens - padded.padding_tokens
    assert padding / tokens < padded.padding_tokens / padded.tokens
    assert packed.batch_shape == (4, 12)


def test_fields_of_a_subclass_are_injected(trl: ObservedProcess) -> None:
    injected = trl.of(Injected)[0]
    assert injected.values == {"weight_decay": 0.25, "max_length": 12, "max_grad_norm": 2.0}
    assert injected.not_found == ("no_such_field",)
    assert "weight decay 0.25" in trl.output


def test_what_the_script_sets_afterwards_is_seen(trl: ObservedProcess) -> None:
    seen = settings_in_effect(trl.events)
    assert (seen["weight_decay"], seen["max_length"]) == (0.25, 12)
    assert seen["max_grad_norm"] == 0.5, "the script set it after the arguments were built"
    assert seen["attn_implementation"] == "sdpa"
    assert seen["gradient_checkpointing"] is True, "TRL's own default"
    assert seen["fused"] is True
    assert any("trl" in event.values for event in trl.of(InEffect))
