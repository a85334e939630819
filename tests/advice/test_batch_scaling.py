"""Splits of the effective batch, and the learning rate that goes with a change of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner_tui.advice.batch_scaling import (
    BatchChange,
    BatchSplit,
    batch_change,
    divisors,
    rebalance,
    scale_learning_rate,
    scale_linear,
    scale_square_root,
    smaller_micro_batches,
)
from tuner_tui.settings.model import Settings

SIZES = st.integers(1, 512)


@pytest.mark.parametrize(
    ("micro", "accumulation", "wanted", "split"),
    [
        (48, 2, 40, (32, 3)),
        (48, 2, 32, (32, 3)),
        (16, 2, 12, (8, 4)),
        (12, 1, 10, (6, 2)),
        (64, 2, 48, (32, 4)),
        (128, 1, 96, (64, 2)),
    ],
)
def test_the_documents_steps_become_exact_ones(
    micro: int, accumulation: int, wanted: int, split: tuple[int, int]
) -> None:
    batch_split = rebalance(micro, accumulation, 1, wanted)
    assert (batch_split.micro, batch_split.accumulation) == split
    assert batch_split.effective == micro * accumulation


def test_a_prime_batch_without_a_divisor_near_is_not_kept() -> None:
    assert rebalance(13, 1, 2, 9).effective == 18


@given(SIZES, SIZES, st.integers(1, 8), SIZES)
def test_a_split_is_exact_or_as_large_as_wanted(micro: int, accumulation: int, processes: int, new_micro: int) -> None:
    batch_split = rebalance(micro, accumulation, processes, new_micro)
    assert batch_split.micro <= new_micro
    assert batch_split.effective == micro * accumulation * processes or batch_split.micro == new_micro
    assert batch_split.accumulation >= 1


@given(SIZES, SIZES)
def test_smaller_micro_batches_hold_the_product(micro: int, accumulation: int) -> None:
    for smaller in smaller_micro_batches(micro, accumulation):
        assert smaller < micro
        assert (micro * accumulation) % smaller == 0


@given(st.integers(1, 5000))
def test_divisors(number: int) -> None:
    assert divisors(number) == tuple(d for d in range(1, number + 1) if number % d == 0)


def test_scaling_rules_have_their_right_names() -> None:
    assert scale_square_root(2e-5, 4) == pytest.approx(4e-5)
    assert scale_linear(2e-5, 4) == pytest.approx(8e-5)
    rate, rule = scale_learning_rate(2e-5, 4, "adamw_torch_fused")
    assert (round(rate, 9), rule) == (4e-5, "square-root scaling (Adam)")
    rate, rule = scale_learning_rate(2e-5, 4, "sgd")
    assert (round(rate, 9), rule) == (8e-5, "linear scaling (SGD)")


def batch_settings(micro: int, accumulation: int, rate: float = 2e-5, optim: str = "adamw_torch") -> Settings:
    return Settings(
        per_device_train_batch_size=micro, gradient_accumulation_steps=accumulation, learning_rate=rate, optim=optim
    )


@pytest.mark.parametrize(
    ("before", "after", "held", "rate"),
    [
        ((64, 2), (48, 3), BatchSplit(32, 4), 2.12e-5),  # "48 × 3, still 144": it was 128
        ((48, 2), (40, 2), BatchSplit(32, 3), 1.83e-5),
        ((8, 4), (32, 4), BatchSplit(32, 1), 4e-5),
        ((17, 1), (8, 1), None, 1.37e-5),
    ],
)
def test_the_arithmetic_is_shown(
    before: tuple[int, int], after: tuple[int, int], held: BatchSplit | None, rate: float
) -> None:
    change = batch_change(batch_settings(*before), batch_settings(*after))
    assert change is not None
    assert (change.before, change.after) == (before[0] * before[1], after[0] * after[1])
    assert change.held == held
    assert change.learning_rate == pytest.approx(rate, rel=0.01)
    assert f"learning_rate={change.learning_rate:.1e} (square-root scaling (Adam))" in change.sentence


def test_a_held_effective_batch_needs_no_word() -> None:
    assert batch_change(batch_settings(48, 2), batch_settings(32, 3)) is None


def test_the_sentence_names_both_ways_out() -> None:
    assert BatchChange(96, 80, BatchSplit(32, 3), 1.8e-5, "square-root scaling (Adam)").sentence == (
        "The effective batch is now 80 (was 96): per_device_train_batch_size=32 "
        "gradient_accumulation_steps=3 keeps it, or keep it and set learning_rate=1.8e-05 (square-root "
        "scaling (Adam))."
    )


@given(SIZES, st.integers(1, 64), SIZES, st.integers(1, 64), st.integers(1, 8))
def test_a_split_that_is_offered_holds_exactly_and_fits(
    micro: int, accumulation: int, new: int, new_accumulation: int, replicas: int
) -> None:
    change = batch_change(batch_settings(micro, accumulation), batch_settings(new, new_accumulation), replicas)
    if change is not None and change.held is not None:
        assert change.held.effective == change.before
        assert change.held.micro <= new
