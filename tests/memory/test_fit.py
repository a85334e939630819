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


def test_a_third_point_on_the_line_shows_that_the_weights_are_no_noise() -> None:
    """70 GiB of weights, and 0.05 for each sample."""
    points = [PeakPoint(batch, line(batch, 70, 0.05), line(batch, 70, 0.05)) for batch in (4, 8, 16)]
    two, three = fit(points[1:]), fit(points)
    assert two is not None
    assert three is not None
    assert two.straight().largest_batch(71.2 * GIB) < 20 < three.straight().largest_batch(71.2 * GIB) <= 24


def test_nothing_fits_above_the_floor() -> None:
    model = PeakModel(base_bytes=4 * GIB, slope_bytes=GIB, floor_bytes=30 * GIB)
    assert model.largest_batch(24 * GIB) == 0


def bent(batch: int) -> int:
    """Flat at first and steep beyond 14 samples, as with checkpointing."""
    return int(max(4 + 0.05 * batch, 2.6 + 0.15 * batch) * GIB)


def test_before_a_bend_the_line_is_uncertain_beyond_its_points() -> None:
    model = fit([PeakPoint(b, bent(b), bent(b)) for b in (4, 12)])
    assert model is not None
    largest = model.largest_batch(20 * GIB)
    assert 10 * GIB < bent(largest) <= 20 * GIB


def test_points_that_reach_far_are_not_uncertain_for_a_bend() -> None:
    steep = fit([PeakPoint(b, line(b, base=2), line(b, base=2)) for b in (4, 24)])
    assert steep is not None
    assert steep.largest_batch(76 * GIB) >= 0.97 * (76 - 2) / 0.5


@pytest.mark.parametrize(
    ("limit", "batch"),
    [
        # 2 + 0.5·b ≤ limit - 1 up to the largest measured, 8: 7 → 8, 6.9 → 7, 3 → 0.
        (7.0, 8),
        (6.9, 7),
        (3.4, 0),
        (2.0, 0),
        # beyond it each sample takes 0.5 + 0.25: 7 + 0.75·n
        (7.74, 8),
        (7.75, 9),
        (10.0, 12),
    ],
)
def test_the_largest_batch_is_within_the_line_and_its_uncertainty(limit: float, batch: int) -> None:
    model = PeakModel(2.0, 0.5, largest_measured=8, uncertainty_bytes=1.0, slope_uncertainty_bytes=0.25)
    assert model.largest_batch(limit) == batch


@pytest.mark.parametrize(("slope", "floor", "batch"), [(0.5, 7.0, 8), (0.5, 7.01, 0), (0.0, 0.0, 0), (-1.0, 0.0, 0)])
def test_no_batch_fits_below_the_floor_or_on_no_line(slope: float, floor: float, batch: int) -> None:
    model = PeakModel(2.0, slope, floor, largest_measured=8, uncertainty_bytes=1.0)
    assert model.largest_batch(7.0) == batch


def test_a_model_is_scaled_in_all_its_parts_and_made_steeper_in_one() -> None:
    model = PeakModel(2.0, 0.5, 3.0)
    assert model.scaled(2.0) == PeakModel(4.0, 1.0, 6.0)
    assert model.steeper(2.0) == PeakModel(2.0, 1.0, 3.0)
    assert [model.peak_bytes(batch) for batch in (1, 2, 3)] == [3.0, 3.0, 3.5]


def test_three_points_give_the_line_of_least_squares_and_their_spread() -> None:
    # Through (1, 10), (2, 20), (3, 36): slope 13, intercept -4; the residuals are 1, -2 and 1.
    model = fit([PeakPoint(batch, peak, peak) for batch, peak in ((1, 10), (2, 20), (3, 36))])
    assert model is not None
    assert (model.slope_bytes, model.base_bytes, model.uncertainty_bytes) == pytest.approx((13.0, -4.0, 2.0))
    assert model.largest_measured == 3


@pytest.mark.parametrize(("second", "is_line"), [(1008, False), (1009, True)])
def test_peaks_within_the_noise_of_two_runs_lie_on_the_floor(second: int, is_line: bool) -> None:
    # Twice 0.4 % of the larger: 8.06 of 1008 and 8.07 of 1009.
    model = fit([PeakPoint(1, 1000), PeakPoint(2, second), PeakPoint(4, 2000)])
    assert (model is not None) == is_line


@pytest.mark.parametrize(("peak", "floor"), [(1003, 0.0), (1005, 1005.0)])
def test_a_peak_clearly_above_the_line_is_the_floor(peak: int, floor: float) -> None:
    model = fit([PeakPoint(10, peak, 1000), PeakPoint(20, 2000, 2000)])
    assert model is not None
    assert model.floor_bytes == floor


def test_no_phase_is_steeper_than_from_the_resident_bytes() -> None:
    assert PeakPoint(10, 1000).steepest_slope is None
    # 1000 and the noise of 0.4 %, less 504, over ten samples
    assert PeakPoint(10, 1000, resident_bytes=504).steepest_slope == pytest.approx(50.0)
