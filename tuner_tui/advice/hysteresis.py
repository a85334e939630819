"""Hysteresis for findings: one appears after it held for some seconds and goes after it was absent for some."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding

IMMEDIATE_CAUSES = frozenset({"nan"})
"""Causes that cannot flicker once they are certain, and of which every further step is lost."""


@dataclass(frozen=True, slots=True)
class TrackedFinding:
    """One cause under watch: its newest finding, since when it holds, and when it was last seen."""

    finding: Finding
    since_s: float
    seen_s: float
    shown: bool


@dataclass(frozen=True, slots=True)
class FindingHysteresis:
    """What is under watch now. Feed it each diagnosis with `after`; read `shown`. Failures, and nan, show at once.

    `appear_s` and `vanish_s` are seconds. The order of the newest diagnosis is kept; findings that linger come last.
    """

    held: tuple[TrackedFinding, ...] = ()
    appear_s: float = field(default=thresholds.APPEAR_S.value)
    vanish_s: float = field(default=thresholds.VANISH_S.value)

    @property
    def shown(self) -> tuple[Finding, ...]:
        """The findings to show now."""
        return tuple(held.finding for held in self.held if held.shown)

    def after(self, findings: Iterable[Finding], now_s: float) -> FindingHysteresis:
        """The watch after one more diagnosis at `now_s` (seconds since the epoch)."""
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
    """What makes two findings the same one: cause and place."""
    return finding.cause, finding.where
