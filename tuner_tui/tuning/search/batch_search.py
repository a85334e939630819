"""The largest micro batch that fits, found in few real runs."""

from __future__ import annotations

import math

from msgspec import Struct

from tuner_tui.memory.fit import NOISE_SHARE, SMALL_BATCH_SHARE, PeakModel, PeakPoint, fit

RESERVE = 0.03
"""Share of the GPU left free: fragmentation grows over a long run, and sample lengths differ from batch to batch."""
PRIOR_UNCERTAINTY = 1.3
"""Factor by which an estimate made before any run may be too small (two standard deviations)."""
CORRECTED_UNCERTAINTY = 1.06
"""The same after scaling the estimate to one measured run."""
SLOPE_UNCERTAINTY = 1.2
"""The same of the slope alone, if the run says little about it."""
USUAL_SHARE = 0.3
"""Usual share of its samples in the peak of a very small batch; the rest are weights, optimizer states and buffers."""
LIKELY_SHARE = 0.87
"""The same of what is not resident."""
OPTIMIZER_STEP_FACTOR = 1.5
"""Peak of an optimizer step relative to what is resident: AdamW keeps 16 bytes a parameter and has temporary copies."""
MAX_LIKELY_GROWTH = 16
"""Maximum factor by which a size that is only likely to fit exceeds the last one."""
MIN_GROWTH = 0.03
"""Minimum relative growth of the batch for another probe."""
CAUTIOUS_UNCERTAINTY = 1.25
"""Replaces `CORRECTED_UNCERTAINTY` after the training ran out of memory with other settings."""
MAX_PROBES = 7


class BatchProbe(Struct, frozen=True):
    """One short run at `batch`, and its peak memory as a point of the memory model; None if it ran out of memory."""

    batch: int
    point: PeakPoint | None


class BatchProposal(Struct, frozen=True):
    """The batch to run next and the reason."""

    batch: int
    reason: str


class BatchSearch(Struct, frozen=True):
    """Immutable search for the largest batch from 1 to `max_batch` on a GPU of `capacity_bytes`.

    If several runs of one size differ, or a smaller size failed after a larger one fitted, the worse result counts.

    Attributes:
        prior: Estimate made before any run. It chooses the first probe; measurements then correct it.
        reserve: Share of the capacity to leave free.
        allowed: The sizes that may be run, such as those that hold the effective batch; None for all.
        careful: Take fewer risks, because a search with other settings ran out of memory.
    """

    capacity_bytes: int
    max_batch: int
    prior: PeakModel | None = None
    reserve: float = RESERVE
    probes: tuple[BatchProbe, ...] = ()
    allowed: tuple[int, ...] | None = None
    careful: bool = False

    @property
    def limit_bytes(self) -> float:
        """Peak memory that leaves the reserve free."""
        return self.capacity_bytes * (1 - self.reserve)

    @property
    def best(self) -> BatchProbe | None:
        """The largest batch that left the reserve free, below all that did not."""
        failed = self._failed
        trusted = [p for p in self.probes if p.batch < failed]
        return max(trusted, key=lambda probe: probe.batch, default=None)

    @property
    def _is_cautious(self) -> bool:
        return self.careful or any(probe.point is None for probe in self.probes)

    @property
    def _failed(self) -> int:
        """The smallest batch that ran out of memory or left too little free; `max_batch + 1` if there is none."""
        bad = [p.batch for p in self.probes if p.point is None or p.point.peak_bytes > self.limit_bytes]
        return min(bad, default=self.max_batch + 1)

    @property
    def _points(self) -> list[PeakPoint]:
        return [probe.point for probe in self.probes if probe.point is not None]

    def propose(self) -> BatchProposal | None:
        """Return the next batch to run, or None at the end of the search."""
        # Each rule below lowers what the one before it proposes: the models say how much should fit, a size that failed
        # limits them, a single run is not extrapolated further than the geometric mean to that size, and only allowed
        # sizes are run. Running out of memory costs more than one more probe: it takes as long, and shows less.
        if len(self.probes) >= MAX_PROBES or self._failed == 1:
            return None
        if not self.probes:
            return self._allowed_below(self._first())
        proposal = self._next()
        best = self.best.batch if self.best else 0
        if proposal.batch >= self._failed and self._failed <= self.max_batch:
            proposal = self._below_failure()
        if best and len(self._points) == 1 and self._failed <= self.max_batch:
            # One run and a failed size: the estimate has been refuted, so stay at the geometric mean of the two.
            between = math.isqrt(best * self._failed)
            if proposal.batch > between:
                proposal = BatchProposal(max(between, best + 1), "far below the size that failed")
        proposal = self._allowed_below(proposal)
        if proposal.batch <= best or (len(self.probes) > 1 and proposal.batch < best * (1 + MIN_GROWTH)):
            return self._second_point(best) or self._by_straight_line(best)
        return proposal

    def _below_failure(self) -> BatchProposal:
        """Return the size between the largest that fits and the smallest that does not, on the line through both.

        The peak is convex in the batch, so it lies below that line. A run that ran out of memory took at least the
        whole GPU.
        """
        best, failed = self.best, next(probe for probe in self.probes if probe.batch == self._failed)
        if best is None or best.point is None:
            return BatchProposal(self._failed // 2, "half the size that failed")
        model = fit(self._points)
        if failed.point is None and model is not None:
            explained = model.peak_bytes(failed.batch) >= self.limit_bytes * (1 - self.reserve)
            if explained and sum(probe.point is None for probe in self.probes) == 1:
                below = model.largest_batch(self.limit_bytes * (1 - self.reserve))
                return BatchProposal(min(below, failed.batch - 1), "by the fitted model, with twice the reserve")
        if failed.point is None and failed.batch > 2 * best.batch:
            return BatchProposal(math.isqrt(best.batch * failed.batch), "far below the size that failed")
        if failed.point is None:
            room, grown = self.limit_bytes * (1 - self.reserve), self.capacity_bytes
        else:
            room, grown = self.limit_bytes * (1 - NOISE_SHARE), failed.point.peak_bytes
        share = (room - best.point.peak_bytes) / max(1, grown - best.point.peak_bytes)
        batch = best.batch + int(share * (failed.batch - best.batch))
        return BatchProposal(min(batch, failed.batch - 1), "below the size that failed, fitted to both")

    def _allowed_below(self, proposal: BatchProposal) -> BatchProposal:
        batch = min(proposal.batch, self.max_batch)
        if self.allowed is not None:
            batch = max((size for size in self.allowed if size <= batch), default=0)
        return BatchProposal(batch, proposal.reason)

    def _second_point(self, best: int) -> BatchProposal | None:
        """Return a smaller size as a second point for the memory model, if no larger one is known to fit."""
        sizes = self.allowed or range(1, self.max_batch + 1)
        if len(self._points) != 1 or not best or best >= min(sizes[-1], self.max_batch):
            return None
        smaller = [size for size in sizes if size <= best // 2]
        return BatchProposal(smaller[-1], "a second point for the memory model") if smaller else None

    def _by_straight_line(self, best: int) -> BatchProposal | None:
        """Return the next allowed size up to twice the best, if it fits unless the peak bends upwards."""
        model, most = fit(self._points), min(2 * best, self._failed - 1)
        following = [size for size in self.allowed or () if best < size <= most]
        if model is None or self._is_cautious or not following:
            return None
        fits = model.straight().largest_batch(self.limit_bytes) >= following[0]
        return BatchProposal(following[0], "the line through both trials has room for it") if fits else None

    def _first(self) -> BatchProposal:
        """Return a size that is safe even if the estimate is far too small; one sample without an estimate."""
        if self.prior is None:
            return BatchProposal(1, "no estimate: one sample first")
        batch = self.prior.scaled(PRIOR_UNCERTAINTY).largest_batch(self.limit_bytes)
        return BatchProposal(max(1, min(batch, self.max_batch)), "safe even if the estimate is 30 % too small")

    def _next(self) -> BatchProposal:
        """Use the fitted model, else the corrected estimate, else what is likely; never less than is proved safe."""
        if not self._points:
            return self._below_failed()
        last = max(self._points, key=lambda point: point.batch)
        model = fit(self._points)
        if model is not None:
            # A bend beyond the sizes measured is unlikely close to them, and less so after more than two of them.
            further = last.batch + (max(1, last.batch // 4) if len(self._points) > 2 else 1)
            straight = min(further, model.straight().largest_batch(self.limit_bytes))
            batch = max(model.largest_batch(self.limit_bytes), straight)
            proposed = BatchProposal(batch, "the largest that fits by the memory model")
        elif self.prior is not None and (len(self._points) == 1 or self._is_cautious):
            proposed = BatchProposal(self._by_prior(self.prior), "the estimate, corrected by the first trial")
        else:
            proposed = BatchProposal(self._likely(last), "likely to fit: little memory depends on the batch")
        # Sound without any model: what is resident does not grow, so each further sample takes at most what one of the
        # samples measured takes of the rest.
        more = int((self.limit_bytes - last.line_bytes) / (last.steepest_slope or last.line_bytes / last.batch))
        proved = BatchProposal(last.batch + max(0, more), "shown to be safe by the last trial")
        return max(proved, proposed, key=lambda proposal: proposal.batch)

    def _below_failed(self) -> BatchProposal:
        # Nothing has fitted yet. The failed size took at least the whole GPU: scale the estimate up accordingly.
        if self.prior is None:
            return BatchProposal(max(1, self._failed // 4), "far below the size that failed")
        short = max(1.0, self.capacity_bytes / self.prior.peak_bytes(self._failed))
        batch = self.prior.scaled(short * CORRECTED_UNCERTAINTY).largest_batch(self.limit_bytes)
        return BatchProposal(max(1, min(batch, self._failed // 2)), "by the estimate, raised after the failure")

    def _by_prior(self, prior: PeakModel) -> int:
        """Return the largest size by the estimate, scaled to the last run, with a margin for its uncertainty."""
        last = max(self._points, key=lambda point: point.batch)
        has_batch_peak = last.batch_peak_bytes is not None
        expected = prior.base_bytes + prior.slope_bytes * last.batch if has_batch_peak else prior.peak_bytes(last.batch)
        doubt = CAUTIOUS_UNCERTAINTY if self._is_cautious else CORRECTED_UNCERTAINTY
        corrected = prior.scaled(last.line_bytes / expected)
        one_more = corrected.peak_bytes(last.batch + 1) <= self.limit_bytes and not self._is_cautious
        largest = corrected.scaled(doubt).largest_batch(self.limit_bytes)
        if corrected.slope_bytes * last.batch < SMALL_BATCH_SHARE * last.line_bytes:
            # A small batch corrects the base; the slope is as uncertain as before.
            room = self.limit_bytes - last.line_bytes
            largest = min(largest, last.batch + int(room / (corrected.slope_bytes * SLOPE_UNCERTAINTY)))
        return max(largest, last.batch + one_more)

    def _likely(self, last: PeakPoint) -> int:
        """Return a size that the runs make likely to fit, if neither a fit nor an estimate says more; 0 for none.

        It is one more sample after runs of one size, and more if runs of several sizes took nearly the same.
        """
        if self._is_cautious:
            return 0
        first = min(self._points, key=lambda point: point.batch)
        steepest = last.steepest_slope
        usual = USUAL_SHARE * last.line_bytes / last.batch if steepest is None else LIKELY_SHARE * steepest
        room = self.limit_bytes - last.line_bytes
        if first.batch == last.batch:
            # The optimizer step rather than the samples may have set the peak.
            resident = last.resident_bytes if last.batch_peak_bytes is None else None
            by_optimizer = resident is not None and last.peak_bytes <= OPTIMIZER_STEP_FACTOR * resident
            return last.batch + (usual <= room or by_optimizer)
        grown = max(0, last.line_bytes - first.line_bytes) + NOISE_SHARE * last.line_bytes
        secant = grown / (last.batch - first.batch)
        if last.batch_peak_bytes is not None:
            usual = min(usual, secant)
        elif steepest is None:  # the smaller size may lie on the floor, so the slope is between these two
            usual = math.sqrt(secant * last.line_bytes / last.batch)
        return min(last.batch + int(room / usual), MAX_LIKELY_GROWTH * last.batch)
