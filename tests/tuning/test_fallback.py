"""The decision after an out-of-memory: which rung, and when none. No process anywhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuning.builders import SCRIPT, oom_situation, oom_state, resolved
from tuner_tui.runs.events.types import Exited, Finished
from tuner_tui.settings.model import OriginKind, Resolved
from tuner_tui.tuning.fallback import SAME_TRAINING, FallbackStep, decide_fallback

NEXT = ((48, 2, 16, 6), (16, 2, 8, 4), (32, 1, 16, 2), (12, 4, 8, 6))
"""Micro batch and accumulation before and after: one step to what fits, which 32 × 3 may not by the estimate."""


def batch(micro: int, accumulation: int = 1, **others: Any) -> Resolved:
    return resolved(per_device_train_batch_size=micro, gradient_accumulation_steps=accumulation, **others)


@pytest.mark.parametrize(("micro", "accumulation", "new_micro", "new_accumulation"), NEXT)
def test_the_next_smaller_micro_batch_holds_the_effective_batch(
    micro: int, accumulation: int, new_micro: int, new_accumulation: int
) -> None:
    before = batch(micro, accumulation)
    step = decide_fallback(oom_situation(before), before, 3)
    assert isinstance(step, FallbackStep)
    assert dict(step.change) == {
        "per_device_train_batch_size": new_micro,
        "gradient_accumulation_steps": new_accumulation,
    }
    assert step.resolved.settings == before.settings.changed(**step.change)
    assert step.resolved.origin("per_device_train_batch_size").kind is OriginKind.REMEDY
    assert f"micro batch {micro} → {new_micro}" in step.sentence


@given(st.integers(1, 512), st.integers(1, 64), st.integers(0, 5), st.sampled_from(["training", "evaluating", None]))
def test_whatever_is_done_leaves_the_training_the_same(
    micro: int, accumulation: int, used: int, where: str | None
) -> None:
    before = batch(micro, accumulation, precision="fp32")
    step = decide_fallback(oom_situation(before, oom_state(where)), before, 6, used)
    if isinstance(step, FallbackStep):
        assert step.change.keys() <= SAME_TRAINING
        after = step.resolved.settings
        assert after.effective_batch() == before.settings.effective_batch()
        assert after.learning_rate == before.settings.learning_rate
        assert after != before.settings


def test_from_the_second_time_on_at_least_half() -> None:
    before = batch(48, 2)
    step = decide_fallback(oom_situation(before), before, 3, 1)
    assert isinstance(step, FallbackStep)
    assert step.change["per_device_train_batch_size"] == 24


def test_a_single_sample_is_helped_by_checkpointing_and_then_by_nothing() -> None:
    before = batch(1, 8)
    step = decide_fallback(oom_situation(before), before, 3)
    assert isinstance(step, FallbackStep)
    assert dict(step.change) == {"gradient_checkpointing": True}
    done = decide_fallback(oom_situation(step.resolved), step.resolved, 3, 1)
    assert isinstance(done, str)
    assert "by hand: max length 128 → 80" in done


def test_in_evaluation_only_the_evaluation_shrinks() -> None:
    before = batch(32, 1, per_device_eval_batch_size=64)
    step = decide_fallback(oom_situation(before, oom_state("evaluating")), before, 3)
    assert isinstance(step, FallbackStep)
    assert dict(step.change) == {"per_device_eval_batch_size": 48}


def test_not_more_often_than_it_may() -> None:
    before = batch(16)
    assert isinstance(decide_fallback(oom_situation(before), before, 2, 1), FallbackStep)
    end = decide_fallback(oom_situation(before), before, 2, 2)
    assert isinstance(end, str)
    assert "2 retries" in end


@pytest.mark.parametrize("outcome", ["completed", "stopped", "failed", "lost"])
def test_another_end_is_left_alone(outcome: str) -> None:
    state = oom_state(out_of_memory=None, finished=Finished(t=9.0, outcome=outcome), exited=Exited(t=9.0, exit_code=1))
    assert decide_fallback(oom_situation(batch(16), state), batch(16), 3) is None


def test_a_bare_kill_is_no_proof_of_anything() -> None:
    state = oom_state(
        out_of_memory=None, finished=Finished(t=9.0, outcome="failed"), exited=Exited(t=9.0, signal=9, oom_kill=None)
    )
    assert decide_fallback(oom_situation(batch(16), state), batch(16), 3) is None


def test_a_setting_that_does_not_reach_the_training_is_not_tried() -> None:
    before = batch(16)
    step = decide_fallback(oom_situation(before), before, 3, unreachable=frozenset({"gradient_accumulation_steps"}))
    assert isinstance(step, FallbackStep)
    assert dict(step.change) == {"gradient_checkpointing": True}


def test_a_script_has_the_batch_that_was_seen_in_it() -> None:
    seen = {"per_device_train_batch_size": 24, "gradient_accumulation_steps": 2}
    none_chosen = resolved()
    step = decide_fallback(oom_situation(none_chosen, oom_state(in_effect=seen), SCRIPT), none_chosen, 3)
    assert isinstance(step, FallbackStep)
    assert dict(step.change) == {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 3}
    assert step.resolved.chosen == {"per_device_train_batch_size", "gradient_accumulation_steps"}


@pytest.mark.parametrize(
    "state",
    [
        oom_state(),
        oom_state(
            in_effect={"per_device_train_batch_size": 24, "gradient_accumulation_steps": 2}, accepts_orders=False
        ),
        oom_state(in_effect={
            "per_device_train_batch_size": 24, "gradient_accumulation_steps": 2, "dataloader_drop_last": True,
        }),
        oom_state(in_effect={
            "per_device_train_batch_size": 24, "gradient_accumulation_steps": 2, "loss_ignores_accumulation": True,
        }),
    ],
    ids=[
        "its batch is not known", "no Trainer accumulates", "each epoch drops its last batch",
        "its gradient would grow",
    ],
)  # fmt: skip
def test_a_batch_that_cannot_be_held_exactly_is_not_touched(state: Any) -> None:
    step = decide_fallback(oom_situation(resolved(), state, SCRIPT), resolved(), 3)
    assert isinstance(step, FallbackStep)
    assert "per_device_train_batch_size" not in step.change


def test_it_is_told_that_the_gradient_would_grow_with_the_accumulation() -> None:
    seen = {
        "per_device_train_batch_size": 24, "gradient_accumulation_steps": 2, "loss_ignores_accumulation": True,
        "gradient_checkpointing": True,
    }  # fmt: skip
    decision = decide_fallback(oom_situation(resolved(), oom_state(in_effect=seen), SCRIPT), resolved(), 3)
    assert isinstance(decision, str)
    assert "grow with accumulation" in decision
