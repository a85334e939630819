"""Batch and learning-rate arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner_tui.advice.scaling import divisors, linear, rebalance, scaled, smaller_micro_batches, square_root

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
    found = rebalance(micro, accumulation, 1, wanted)
    assert (found.split.micro, found.split.accumulation) == split
    assert found.exact


def test_a_prime_batch_has_no_divisor_near_and_says_so() -> None:
    found = rebalance(13, 1, 2, 9)
    assert found.split.effective == 18
    assert found.wanted == 26
    assert not found.exact


def test_the_claim_of_144_is_arithmetic() -> None:
    assert rebalance(64, 2, 1, 64).wanted == 128
    assert 48 * 3 == 144


@given(SIZES, SIZES, st.integers(1, 8), SIZES)
def test_a_split_is_exact_or_as_large_as_wanted(micro: int, accumulation: int, processes: int, new_micro: int) -> None:
    found = rebalance(micro, accumulation, processes, new_micro)
    assert found.split.micro <= new_micro
    assert found.exact or found.split.micro == new_micro
    assert found.split.accumulation >= 1


@given(SIZES, SIZES)
def test_smaller_micro_batches_hold_the_product(micro: int, accumulation: int) -> None:
    for smaller in smaller_micro_batches(micro, accumulation):
        assert smaller < micro
        assert (micro * accumulation) % smaller == 0


@given(st.integers(1, 5000))
def test_divisors(number: int) -> None:
    assert divisors(number) == tuple(d for d in range(1, number + 1) if number % d == 0)


def test_scaling_rules_have_their_right_names() -> None:
    assert square_root(2e-5, 4) == pytest.approx(4e-5)
    assert linear(2e-5, 4) == pytest.approx(8e-5)
    rate, rule = scaled(2e-5, 4, "adamw_torch_fused")
    assert (round(rate, 9), rule) == (4e-5, "square-root scaling (Adam)")
    rate, rule = scaled(2e-5, 4, "sgd")
    assert (round(rate, 9), rule) == (8e-5, "linear scaling (SGD)")
