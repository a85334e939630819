"""Hysteresis for findings: one appears after it held for some seconds and goes after it was absent for some."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding

IMMEDIATE_CAUSES = frozenset({"nan"})
"""Causes that are shown at once when certain: they do not flicker, and every further step is wasted."""


@dataclass(frozen=True, slots=True)
class TrackedFinding:
    """The newest finding of one cause, since when it holds, and when it was last seen."""

    finding: Finding
    since_s: float
    seen_s: float
    shown: bool


@dataclass(frozen=True, slots=True)
class FindingHysteresis:
    """The findings tracked so far. Pass each diagnosis to `after`; read `shown`.

    A finding appears after `appear_s` seconds and disappears after `vanish_s` seconds; failures and nan appear at once.
    The order of the newest diagnosis is kept, and findings that are about to disappear come last.
    """

    held: tuple[TrackedFinding, ...] = ()
    appear_s: float = field(default=thresholds.APPEAR_S.value)
    vanish_s: float = field(default=thresholds.VANISH_S.value)

    @property
    def shown(self) -> tuple[Finding, ...]:
        """The findings to show now."""
        return tuple(held.finding for held in self.held if held.shown)

    def after(self, findings: Iterable[Finding], now_s: float) -> FindingHysteresis:
        """The state after one more diagnosis at `now_s`, seconds since the epoch."""
        earlier = {finding_key(held.finding): held for held in self.held}
        present = [self._seen(finding, earlier.get(finding_key(finding)), now_s) for finding in findings]
        causes = {finding_key(held.finding) for held in present}
        lingering = [h for h in self.held if finding_key(h.finding) not in causes and self._lingers(h, now_s)]
        return FindingHysteresis((*present, *lingering), self.appear_s, self.vanish_s)

    def _seen(self, finding: Finding, earlier: TrackedFinding | None, now_s: float) -> TrackedFinding:
        since_s = now_s if earlier is None else earlier.since_s
        urgent = finding.severity == "failed" or (finding.cause in IMMEDIATE_CAUSES and finding.confidence == "certain")
        shown = (earlier is not None and earlier.shown) or urgent
        return TrackedFinding(finding, since_s, now_s, shown or now_s - since_s >= self.appear_s)

    def _lingers(self, held: TrackedFinding, now_s: float) -> bool:
        return held.shown and held.finding.severity != "failed" and now_s - held.seen_s < self.vanish_s


def finding_key(finding: Finding) -> tuple[str, str | None]:
    """The identity of a finding: cause and location."""
    return finding.cause, finding.where
