"""The fitted memory model: the floor never bends the line, uncertainty holds the jump back."""

from __future__ import annotations

import pytest

from tuner_tui.memory.fit import PeakModel, PeakPoint, fit

GIB = 2**30


def line(batch: int, base: float = 4, slope: float = 0.5) -> int:
    return int((base + slope * batch) * GIB)


def test_two_points_known_apart_give_the_line() -> None:
    model = fit([PeakPoint(1, line(1), line(1)), PeakPoint(4, line(4), line(4))])
    assert model is not None
    assert model.base_bytes == pytest.approx(4 * GIB, rel=1e-6)
    assert model.slope_bytes == pytest.approx(0.5 * GIB, rel=1e-6)


def test_points_on_the_optimizer_floor_do_not_flatten_the_line() -> None:
    floor = 12 * GIB
    model = fit([PeakPoint(b, max(floor, line(b)), line(b)) for b in (1, 2, 4)])
    assert model is not None
    assert model.slope_bytes == pytest.approx(0.5 * GIB, rel=1e-6)
    assert model.peak_bytes(1) == floor
    assert model.peak_bytes(40) == pytest.approx(24 * GIB, rel=1e-6)


def test_flat_points_of_unknown_parts_say_nothing_of_the_slope() -> None:
    floor = 12 * GIB
    assert fit([PeakPoint(1, floor), PeakPoint(2, floor), PeakPoint(4, floor)]) is None


def test_one_point_is_no_line() -> None:
    assert fit([PeakPoint(8, line(8), line(8))]) is None
    assert fit([]) is None


def test_far_jumps_are_held_back_by_the_noise_of_near_points() -> None:
    near = fit([PeakPoint(1, line(1), line(1)), PeakPoint(2, line(2), line(2))])
    far = fit([PeakPoint(1, line(1), line(1)), PeakPoint(64, line(64), line(64))])
    assert near is not None
    assert far is not None
    true_maximum = int((76 - 4) / 0.5)
    assert near.largest_batch(76 * GIB) < far.largest_batch(76 * GIB) <= true_maximum


def test_nothing_fits_above_the_floor() -> None:
    model = PeakModel(base_bytes=4 * GIB, slope_bytes=GIB, floor_bytes=30 * GIB)
    assert model.largest_batch(24 * GIB) == 0


def bent(batch: int) -> int:
    """Flat at first and steep beyond 14 samples, as with checkpointing."""
    return int(max(4 + 0.05 * batch, 2.6 + 0.15 * batch) * GIB)


@pytest.mark.parametrize("prior", [None, PeakModel(2.6 * GIB, 0.15 * GIB)])
def test_before_a_bend_the_line_is_uncertain_beyond_its_points(prior: PeakModel | None) -> None:
    model = fit([PeakPoint(b, bent(b), bent(b)) for b in (4, 12)], prior)
    assert model is not None
    largest = model.largest_batch(20 * GIB)
    assert 10 * GIB < bent(largest) <= 20 * GIB


def test_points_that_reach_far_are_not_uncertain_for_a_bend() -> None:
    steep = fit([PeakPoint(b, line(b, base=2), line(b, base=2)) for b in (4, 24)])
    assert steep is not None
    assert steep.largest_batch(76 * GIB) >= 0.97 * (76 - 2) / 0.5
