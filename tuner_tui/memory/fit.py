"""The memory model fitted to measurements: `peak(b) = max(floor, base + slope·b)`.

The floor matters: with AdamW the optimizer step, not the batch, sets the peak of small batches, and a straight line
drawn through two points on the floor overshoots the GPU several times. All sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import linear_regression

from msgspec import Struct
from msgspec.structs import replace

NOISE_SHARE = 0.004
"""Relative difference of the peaks of two equal runs (two standard deviations)."""
SMALL_BATCH_SHARE = 0.25
"""Points whose activations are less than this share of the peak may lie before a bend: with checkpointing the backward
pass of one block, which grows slowly, sets the peak of small batches, and the logits that of large ones."""
BEND_SHARE = 0.40
"""The slope beyond such a bend relative to the average peak per sample before it; the steepest of three measured bends
had 0.43, which the reserve then covers."""


class PeakPoint(Struct, frozen=True):
    """One measurement: micro batch, peak and, where measured separately, the peak of forward and backward alone.

    `resident_bytes` is a lower bound of what does not depend on the batch, such as weights and optimizer states.
    """

    batch: int
    peak_bytes: int
    batch_peak_bytes: int | None = None
    resident_bytes: int | None = None

    @property
    def line_bytes(self) -> int:
        """The peak that depends on the batch: on the line where it was measured separately, else at or above it."""
        return self.peak_bytes if self.batch_peak_bytes is None else self.batch_peak_bytes

    @property
    def steepest_slope(self) -> float | None:
        """The most that each further sample can take; None without `resident_bytes`.

        Each phase of a step begins with at least the resident bytes and grows in a straight line, so no phase is
        steeper than the line from there to this point.
        """
        if self.resident_bytes is None:
            return None
        return (self.line_bytes * (1 + NOISE_SHARE) - self.resident_bytes) / self.batch


class PeakModel(Struct, frozen=True):
    """`peak(b) = max(floor, base + slope·b)`.

    `uncertainty_bytes` is the uncertainty of the line at `largest_measured`, the largest measured batch, to which
    `slope_uncertainty_bytes` adds for each sample beyond it; all 0 for a model that was not measured.
    """

    base_bytes: float
    slope_bytes: float
    floor_bytes: float = 0.0
    largest_measured: int = 0
    uncertainty_bytes: float = 0.0
    slope_uncertainty_bytes: float = 0.0

    def peak_bytes(self, batch: int) -> float:
        return max(self.floor_bytes, self.base_bytes + self.slope_bytes * batch)

    def scaled(self, factor: float) -> PeakModel:
        return PeakModel(self.base_bytes * factor, self.slope_bytes * factor, self.floor_bytes * factor)

    def steeper(self, factor: float) -> PeakModel:
        return PeakModel(self.base_bytes, self.slope_bytes * factor, self.floor_bytes)

    def largest_batch(self, limit_bytes: float) -> int:
        """The largest batch whose peak, with its uncertainty, is at most `limit_bytes`; 0 where none is."""
        if self.floor_bytes > limit_bytes or self.slope_bytes <= 0:
            return 0
        within = (limit_bytes - self.base_bytes - self.uncertainty_bytes) / self.slope_bytes
        if within <= self.largest_measured:
            return max(0, int(within))
        beyond = limit_bytes - self.base_bytes - self.uncertainty_bytes - self.slope_bytes * self.largest_measured
        return self.largest_measured + int(beyond / (self.slope_bytes + self.slope_uncertainty_bytes))

    def straight(self) -> PeakModel:
        """The model without a possible bend beyond the measured batches."""
        return replace(self, slope_uncertainty_bytes=0.0)


def fit(points: Sequence[PeakPoint]) -> PeakModel | None:
    """The model through two or more points above the floor; None while the slope is within the noise.

    The peak is convex and piecewise linear in the batch, so a line through small batches can only be too flat for large
    ones. Where the points do not reach far, the slope beyond them is uncertain.

    Where forward and backward were not measured separately, points with nearly the same peak are taken to lie on the
    floor. Only the largest of them bounds the line, and only from above.
    """
    sloped = _above_floor(points)
    if len(sloped) < 2:
        return None
    slope, base = linear_regression([point.batch for point in sloped], [point.line_bytes for point in sloped])
    if slope <= 0:
        return None
    spread = max(abs(point.line_bytes - base - slope * point.batch) for point in sloped)
    last = sloped[-1]
    # What does not grow with the batch is the same in each run: three points on one line show it, two do not.
    noise = NOISE_SHARE * (slope * last.batch if len(sloped) > 2 else last.line_bytes)
    # A peak clearly above the line is that of the optimizer step.
    above = [p.peak_bytes for p in points if p.peak_bytes > (base + slope * p.batch) * (1 + NOISE_SHARE)]
    return PeakModel(
        base_bytes=base,
        slope_bytes=slope,
        floor_bytes=float(max(above, default=0)),
        largest_measured=last.batch,
        uncertainty_bytes=max(noise, spread),
        slope_uncertainty_bytes=_slope_uncertainty(sloped, slope, noise),
    )


def _slope_uncertainty(points: Sequence[PeakPoint], slope: float, noise: float) -> float:
    """By how much the slope beyond the last of `points` may exceed `slope`: by noise or by a bend, within its bound."""
    last, bend = points[-1], 0.0
    if last.steepest_slope is not None:
        bend = max(0.0, last.steepest_slope - slope)
    elif slope * last.batch < SMALL_BATCH_SHARE * last.line_bytes:  # else activations dominate: the bend is behind
        bend = max(0.0, BEND_SHARE * last.line_bytes / last.batch - slope)
    if len(points) > 2:  # the further they are apart on one line, the less likely is a bend just beyond them
        bend *= points[0].batch / last.batch
    # Two peaks, each off by the noise in the opposite direction, turn the line by the noise over their distance.
    return max(noise / (last.batch - points[0].batch), bend)


def _above_floor(points: Sequence[PeakPoint]) -> list[PeakPoint]:
    """One point per batch, smallest first, without those that may lie on the floor.

    Without separate measurements even the first point that is lower than its successor may do so.
    """
    # The optimizer step sets the peak of small batches: it takes the same at each of them, so that equal neighbours are
    # on the floor. The point after them may be the last one on it, or the first on the line: only what follows is sure.
    ordered = sorted({point.batch: point for point in points}.values(), key=lambda point: point.batch)
    if all(point.batch_peak_bytes is not None for point in ordered):
        return ordered
    while len(ordered) >= 2 and ordered[1].line_bytes * (1 - 2 * NOISE_SHARE) <= ordered[0].line_bytes:
        ordered.pop(0)
    return ordered[1:]
