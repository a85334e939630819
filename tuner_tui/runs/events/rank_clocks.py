"""Brings the events of ranks whose clock is wrong, as on another machine of a cluster, to the supervisor's time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuner_tui.runs.events.types import Event, Launched, Started

LARGEST_SKEW_S = 60.0
"""Clocks that differ by less are taken for right."""


class RankClocks:
    """What the clocks of the ranks of one run say when it is launched.

    A rank that started before its launch, or in the future, has a wrong clock; it is set as if the rank had started at
    the launch.
    """

    def __init__(self) -> None:
        self._launched_t: float | None = None
        self._skews: dict[int, float] = {}

    def corrected(self, events: Sequence[Event], now: float) -> list[Event]:
        """The events, read at `now`, in the supervisor's time (seconds since the epoch)."""
        for event in events:
            if isinstance(event, Launched) and self._launched_t is None:
                self._launched_t = event.t
        if self._launched_t is None:
            return list(events)
        for event in events:
            if isinstance(event, Started) and event.rank is not None and event.rank not in self._skews:
                wrong = event.t < self._launched_t - LARGEST_SKEW_S or event.t > now + LARGEST_SKEW_S
                self._skews[event.rank] = self._launched_t - event.t if wrong else 0.0
        if not any(self._skews.values()):
            return list(events)
        return [self._corrected(event) for event in events]

    def _corrected(self, event: Event) -> Event:
        skew = 0.0 if event.rank is None else self._skews.get(event.rank, 0.0)
        return replace(event, t=event.t + skew) if skew else event
