"""Another micro batch: the effective batch is held exactly, or the difference and its learning rate are told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner_tui.advice.batch_change import BatchChange, batch_change
from tuner_tui.advice.scaling import Split
from tuner_tui.settings.model import Settings


def settings(micro: int, accumulation: int, rate: float = 2e-5, optim: str = "adamw_torch") -> Settings:
    return Settings(
        per_device_train_batch_size=micro, gradient_accumulation_steps=accumulation, learning_rate=rate, optim=optim
    )


@pytest.mark.parametrize(
    ("before", "after", "held", "rate"),
    [
        ((64, 2), (48, 3), Split(32, 4), 2.12e-5),  # "48 × 3, still 144": it was 128
        ((48, 2), (40, 2), Split(32, 3), 1.83e-5),
        ((8, 4), (32, 4), Split(32, 1), 4e-5),
        ((17, 1), (8, 1), None, 1.37e-5),
    ],
)
def test_the_arithmetic_is_shown(
    before: tuple[int, int], after: tuple[int, int], held: Split | None, rate: float
) -> None:
    found = batch_change(settings(*before), settings(*after))
    assert found is not None
    assert (found.before, found.after) == (before[0] * before[1], after[0] * after[1])
    assert found.held == held
    assert found.learning_rate == pytest.approx(rate, rel=0.01)
    assert f"learning_rate={found.learning_rate:.1e} (square-root scaling (Adam))" in found.sentence


def test_a_held_effective_batch_needs_no_word() -> None:
    assert batch_change(settings(48, 2), settings(32, 3)) is None


def test_sgd_scales_linearly() -> None:
    found = batch_change(settings(8, 1, 0.1, "sgd"), settings(32, 1, 0.1, "sgd"))
    assert found is not None
    assert (found.learning_rate, found.rule) == (0.4, "linear scaling (SGD)")


def test_the_sentence_names_both_ways_out() -> None:
    assert BatchChange(96, 80, Split(32, 3), 1.8e-5, "square-root scaling (Adam)").sentence == (
        "Effective batch 80, where it was 96: per_device_train_batch_size=32 gradient_accumulation_steps=3 holds it "
        "exactly, or keep it and set learning_rate=1.8e-05 (square-root scaling (Adam))."
    )


sizes = st.integers(1, 512)


@given(sizes, st.integers(1, 64), sizes, st.integers(1, 64), st.integers(1, 8))
def test_a_split_that_is_offered_holds_exactly_and_fits(
    micro: int, accumulation: int, new: int, new_accumulation: int, replicas: int
) -> None:
    found = batch_change(settings(micro, accumulation), settings(new, new_accumulation), replicas)
    if found is not None and found.held is not None:
        assert found.held.effective == found.before
        assert found.held.micro <= new
