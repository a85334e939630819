"""The largest micro batch that fits, found in few real runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tuner_tui.memory.fit import PeakModel, PeakPoint, fit

RESERVE = 0.03
"""Share of the card left free in the result: fragmentation grows over a long run, and lengths differ by batch."""
PRIOR_UNCERTAINTY = 1.3
"""An estimate made before any run may be this many times too small (two standard deviations)."""
CORRECTED_UNCERTAINTY = 1.06
"""The same once the estimate was scaled to go through one measured run."""
MIN_BASE_SHARE = 0.4
"""Weights, gradients and optimizer take at least about this share of the peak of very small batches."""
MIN_GROWTH = 0.04
"""A further probe must promise a batch this much larger than the best one."""
CAUTIOUS_UNCERTAINTY = 1.25
"""In place of `CORRECTED_UNCERTAINTY` where the training ran out of memory beside other settings."""
MAX_PROBES = 7


@dataclass(frozen=True, slots=True)
class BatchProbe:
    """What one short run at `batch` took; both peaks are None where it ran out of memory.

    `batch_peak_bytes` is the peak of forward and backward alone, where it is known apart from the optimizer step's.
    """

    batch: int
    peak_bytes: int | None
    batch_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class BatchProposal:
    """The batch to run next and why."""

    batch: int
    reason: str


@dataclass(frozen=True, slots=True)
class BatchSearch:
    """Searches 1 … `most` (never above the dataset) on a card of `capacity_bytes`.

    `allowed` are the only sizes that may be run, where not all may: those that hold an effective batch. Of several runs
    of one size, and where a smaller size failed after a larger one had fitted, the worse is trusted.
    `careful`: what is not proved is left alone sooner, as after another search that ran out of memory.
    `prior` is the estimate made before any run. It chooses where to look first; from the second run on, measurements
    decide how far it is trusted.
    """

    capacity_bytes: int
    most: int
    prior: PeakModel | None = None
    reserve: float = RESERVE
    probes: tuple[BatchProbe, ...] = ()
    allowed: tuple[int, ...] | None = None
    careful: bool = False

    def record(self, probe: BatchProbe) -> BatchSearch:
        """The search that has seen `probe`."""
        return replace(self, probes=(*self.probes, probe))

    @property
    def limit_bytes(self) -> float:
        """What a trusted batch may take."""
        return self.capacity_bytes * (1 - self.reserve)

    @property
    def best(self) -> BatchProbe | None:
        """The largest batch that was run and left the reserve free, no smaller one having failed to."""
        failed = self._failed
        trusted = [p for p in self.probes if p.batch < failed]
        return max(trusted, key=lambda probe: probe.batch, default=None)

    @property
    def _warned(self) -> bool:
        return self.careful or any(probe.peak_bytes is None for probe in self.probes)

    @property
    def _failed(self) -> int:
        """The smallest batch that ran out of memory or left too thin a reserve; one above `most` if none did."""
        bad = [p.batch for p in self.probes if p.peak_bytes is None or p.peak_bytes > self.limit_bytes]
        return min(bad, default=self.most + 1)

    @property
    def _points(self) -> list[PeakPoint]:
        return [PeakPoint(p.batch, p.peak_bytes, p.batch_peak_bytes) for p in self.probes if p.peak_bytes is not None]

    def propose(self) -> BatchProposal | None:
        """The next batch to run, or None where the search is at its end."""
        if len(self.probes) >= MAX_PROBES or self._failed == 1:
            return None
        if not self.probes:
            return self._permitted(self._first())
        proposal = self._next()
        best = self.best.batch if self.best else 0
        if proposal.batch >= self._failed and self._failed <= self.most:
            proposal = BatchProposal((best + self._failed) // 2, "half way to the size that failed")
        if best and len(self._points) == 1 and proposal.batch > (between := math.isqrt(best * self._failed)):
            proposal = self._refuted(proposal, between)
        proposal = self._permitted(proposal)
        if proposal.batch <= best or (len(self.probes) > 1 and proposal.batch < best * (1 + MIN_GROWTH)):
            return self._for_the_model(best)
        return proposal

    def _refuted(self, proposal: BatchProposal, between: int) -> BatchProposal:
        """Far below the size that failed, where an estimate said that it fits and one run is all that is known."""
        if self._failed > self.most:
            return proposal
        return BatchProposal(max(between, self.best.batch + 1 if self.best else 1), "far below the size that failed")

    def _permitted(self, proposal: BatchProposal) -> BatchProposal:
        """The largest size up to the proposed one that may be run."""
        batch = min(proposal.batch, self.most)
        if self.allowed is not None:
            batch = max((size for size in self.allowed if size <= batch), default=0)
        return BatchProposal(batch, proposal.reason)

    def _for_the_model(self, best: int) -> BatchProposal | None:
        """A smaller size, where only few may be run and one run alone cannot tell whether the next larger fits."""
        if self.allowed is None or len(self._points) != 1 or not best or best >= min(self.allowed[-1], self.most):
            return None
        smaller = [size for size in self.allowed if size <= best // 2]
        return BatchProposal(smaller[-1], "a second point for the model of memory") if smaller else None

    def _first(self) -> BatchProposal:
        """What the estimate thinks safe even if it is far too small, else one sample."""
        if self.prior is None:
            return BatchProposal(1, "no estimate: one sample first")
        batch = self.prior.scaled(PRIOR_UNCERTAINTY).largest_batch(self.limit_bytes)
        return BatchProposal(max(1, min(batch, self.most)), "safe even if the estimate is 30 % too small")

    def _next(self) -> BatchProposal:
        """By the fitted model where there is one, else by the corrected estimate, else by what is proved safe."""
        if not self._points:
            return self._below_failed()
        model = fit(self._points)
        if model is not None:
            return BatchProposal(model.largest_batch(self.limit_bytes), "the largest that fits by the fitted model")
        if self.prior is not None:
            return BatchProposal(self._by_prior(self.prior), "the estimate, corrected by the first run")
        return BatchProposal(self._proved(self._points[-1]), "proved safe by the last run")

    def _below_failed(self) -> BatchProposal:
        """Where nothing ran yet: by the estimate, made as large as the failure shows, else far below."""
        if self.prior is None:
            return BatchProposal(max(1, self._failed // 4), "far below the size that failed")
        short = max(1.0, self.capacity_bytes / self.prior.peak_bytes(self._failed))
        batch = self.prior.scaled(short * CORRECTED_UNCERTAINTY).largest_batch(self.limit_bytes)
        return BatchProposal(
            max(1, min(batch, self._failed // 2)), "by the estimate, as much larger as the failure shows"
        )

    def _by_prior(self, prior: PeakModel) -> int:
        """The estimate, scaled to go through the last run, with a margin that shrinks as it is confirmed."""
        last = self._points[-1]
        known = last.batch_peak_bytes is not None
        expected = prior.base_bytes + prior.slope_bytes * last.batch if known else prior.peak_bytes(last.batch)
        doubt = CAUTIOUS_UNCERTAINTY if self._warned else CORRECTED_UNCERTAINTY
        corrected = prior.scaled(last.line_bytes / expected * doubt)
        return max(corrected.largest_batch(self.limit_bytes), self._proved(last))

    def _proved(self, point: PeakPoint) -> int:
        """What one run proves to fit, a line through the origin being the worst case.

        Where that proves nothing, one sample more is tried if it fits with `MIN_BASE_SHARE` of the run being base.
        """
        proved = int(point.batch * self.limit_bytes / point.line_bytes)
        if self._warned:
            return proved
        one_more = point.line_bytes * (1 + (1 - MIN_BASE_SHARE) / point.batch)
        return point.batch + 1 if proved <= point.batch and one_more <= self.limit_bytes else proved
