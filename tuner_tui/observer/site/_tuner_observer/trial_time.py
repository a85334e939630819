"""Time in a trial where a GPU works behind the program's back: by its own events, with one wait at the end."""

from __future__ import annotations

import time
from typing import Any

MOST_PAIRS = 64
"""Optimizer steps timed on a GPU; their share is that of all."""


class Stopwatch:
    """The measured stretch and the optimizer's part of it. Without CUDA, `perf_counter` is all there is to it.

    With CUDA the program runs ahead of the card, so that both ends of the stretch are marked in the card's own queue.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._runs = False
        self._optimizer_s = 0.0
        self._since_s = 0.0
        self._pairs: list[tuple[Any, Any]] = []
        self._began: tuple[float, Any] | None = None
        self._late_s = 0.0

    def begin(self) -> None:
        """The measured stretch begins, perhaps anew."""
        self._runs = True
        self._optimizer_s = 0.0
        self._pairs.clear()
        self._began = (time.perf_counter(), self._event())

    def optimizer_begins(self) -> None:
        """An optimizer step begins."""
        self._since_s = time.perf_counter()
        event = self._event() if self._runs and len(self._pairs) < MOST_PAIRS else None
        if event is not None:
            self._pairs.append((event, None))

    def optimizer_ends(self) -> None:
        """It is done."""
        if not self._runs:
            return
        self._optimizer_s += time.perf_counter() - self._since_s
        if self._pairs and self._pairs[-1][1] is None:
            self._pairs[-1] = (self._pairs[-1][0], self._event())

    def end(self) -> None:
        """The stretch is over: wait for the card, and see how far it was behind at either end."""
        self._runs = False
        if self._began is None or self._began[1] is None:
            return
        last_s, last = time.perf_counter(), self._event()
        self._torch.cuda.synchronize()
        self._late_s = self._began[1].elapsed_time(last) / 1000 - (last_s - self._began[0])

    def corrected(self, seconds: float) -> float:
        """The length of the stretch by the card's clock, of which the program's says `seconds`."""
        return max(seconds + self._late_s, 0.0)

    def optimizer_s(self, steps: int) -> float | None:
        """Seconds of the optimizer in `steps` steps; None where none was seen."""
        pairs = [(first, last) for first, last in self._pairs if last is not None]
        if pairs:
            seconds = sum(float(first.elapsed_time(last)) for first, last in pairs) / 1000
            return round(seconds * steps / len(pairs), 6)
        return round(self._optimizer_s, 6) or None

    def _event(self) -> Any:
        """A mark in the card's queue; None without CUDA."""
        if not self._torch.cuda.is_initialized():
            return None
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event
