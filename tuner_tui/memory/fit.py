"""The memory model fitted to measurements: `peak(b) = max(floor, base + slope·b)`.

The floor matters: with AdamW the optimizer step, not the batch, sets the peak of small batches, and a straight line
drawn through two points on the floor overshoots the card several times. All sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

NOISE_SHARE = 0.004
"""Two runs of one size differ by about this share of their peak (two standard deviations)."""
SMALL_BATCH_SHARE = 0.25
"""Points whose batch makes up less than this share of the peak may lie before a bend: with checkpointing the backward
pass of one block, which grows slowly, sets the peak of small batches, and the logits that of large ones."""
BEND_SHARE = 0.40
"""Behind such a bend a sample may take this share of what it took on average before: of three bends that were measured
the steepest was 0.43, which the reserve then covers."""


@dataclass(frozen=True, slots=True)
class PeakPoint:
    """One measured run: its micro batch, its peak, and, where it is known apart, that of forward and backward alone."""

    batch: int
    peak_bytes: int
    batch_peak_bytes: int | None = None

    @property
    def line_bytes(self) -> int:
        """The peak that the batch is answerable for: on the line where it is known apart, else at or above it."""
        return self.peak_bytes if self.batch_peak_bytes is None else self.batch_peak_bytes


@dataclass(frozen=True, slots=True)
class PeakModel:
    """`peak(b) = max(floor, base + slope·b)`.

    `doubt_bytes` is what the line may be off at `reach`, the largest measured batch, and `doubt_slope_bytes` what it
    may be off a sample more beyond it; both 0 for a model that was not measured.
    """

    base_bytes: float
    slope_bytes: float
    floor_bytes: float = 0.0
    reach: int = 0
    doubt_bytes: float = 0.0
    doubt_slope_bytes: float = 0.0

    def peak_bytes(self, batch: int) -> float:
        """The peak expected at `batch`."""
        return max(self.floor_bytes, self.base_bytes + self.slope_bytes * batch)

    def scaled(self, factor: float) -> PeakModel:
        """The same model with every part `factor` times as large."""
        return PeakModel(self.base_bytes * factor, self.slope_bytes * factor, self.floor_bytes * factor)

    def steeper(self, factor: float) -> PeakModel:
        """The same base with `factor` times as much a sample."""
        return PeakModel(self.base_bytes, self.slope_bytes * factor, self.floor_bytes)

    def largest_batch(self, limit_bytes: float) -> int:
        """The largest batch whose peak stays within `limit_bytes`, doubts counted; 0 where none does."""
        if self.floor_bytes > limit_bytes or self.slope_bytes <= 0:
            return 0
        within = (limit_bytes - self.base_bytes - self.doubt_bytes) / self.slope_bytes
        if within <= self.reach:
            return max(0, int(within))
        beyond = limit_bytes - self.base_bytes - self.doubt_bytes - self.slope_bytes * self.reach
        return self.reach + int(beyond / (self.slope_bytes + self.doubt_slope_bytes))

    def straight(self) -> PeakModel:
        """The same line, taken not to bend beyond what was measured."""
        return replace(self, doubt_slope_bytes=0.0)


def fit(points: Sequence[PeakPoint], prior: PeakModel | None = None) -> PeakModel | None:
    """The model through two or more points off the floor; None while the slope cannot be told from the noise.

    The peak is a convex curve of straight pieces, so that a line through small batches can only be too flat for large
    ones. Where the points do not reach far, the line is doubted beyond them; `prior`, an estimate that knows the bend,
    says by how much.

    Where the peak of forward and backward is not known apart, points of (nearly) one peak are taken to lie on the
    floor: only the largest of them says anything of the line, and that only from above.
    """
    sloped = _above_floor(points)
    if len(sloped) < 2:
        return None
    slope, base = _least_squares(sloped)
    if slope <= 0:
        return None
    spread = max(abs(point.line_bytes - base - slope * point.batch) for point in sloped)
    last = sloped[-1]
    noise = NOISE_SHARE * last.line_bytes
    return PeakModel(
        base_bytes=base,
        slope_bytes=slope,
        floor_bytes=_floor(points, base, slope),
        reach=last.batch,
        doubt_bytes=max(noise, spread),
        doubt_slope_bytes=max(noise / (last.batch - sloped[0].batch), _bend(last, slope, prior)),
    )


def _bend(last: PeakPoint, slope: float, prior: PeakModel | None) -> float:
    """By how much a sample may take more beyond `last` than up to it."""
    if slope * last.batch >= SMALL_BATCH_SHARE * last.line_bytes:
        return 0.0
    if prior is None:
        return max(0.0, BEND_SHARE * last.line_bytes / last.batch - slope)
    expected = prior.base_bytes + prior.slope_bytes * last.batch
    return max(0.0, prior.slope_bytes * last.line_bytes / expected - slope)


def _floor(points: Sequence[PeakPoint], base: float, slope: float) -> float:
    """The highest peak that stands clear above the line: what the optimizer step takes."""
    above = [p.peak_bytes for p in points if p.peak_bytes > (base + slope * p.batch) * (1 + NOISE_SHARE)]
    return float(max(above, default=0))


def _above_floor(points: Sequence[PeakPoint]) -> list[PeakPoint]:
    """One point a batch, smallest first, without those that may lie on the floor.

    Where the parts are not known apart, even the smallest point that stands below the next may do so.
    """
    ordered = sorted({point.batch: point for point in points}.values(), key=lambda point: point.batch)
    if all(point.batch_peak_bytes is not None for point in ordered):
        return ordered
    while len(ordered) >= 2 and _flat(ordered[0], ordered[1]):
        ordered.pop(0)
    return ordered[1:]


def _flat(small: PeakPoint, large: PeakPoint) -> bool:
    return large.line_bytes - small.line_bytes <= 2 * NOISE_SHARE * large.line_bytes


def _least_squares(points: Sequence[PeakPoint]) -> tuple[float, float]:
    """Slope and intercept of the line through `points`."""
    count = len(points)
    mean_batch = sum(point.batch for point in points) / count
    mean_peak = sum(point.line_bytes for point in points) / count
    spread = sum((point.batch - mean_batch) ** 2 for point in points)
    slope = sum((point.batch - mean_batch) * (point.line_bytes - mean_peak) for point in points) / spread
    return slope, mean_peak - slope * mean_batch
