"""What one iterator of a DataLoader delivered to the training since the last optimizer step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .batches import Layout, Measured


class Source:
    """One iterator of a loader.

    `looks_ahead`: its reader fetches one batch more than it hands on (accelerate does); that batch waits in `ahead`.
    `stepped`: an optimizer step followed one of its batches at some time. Times are those of `perf_counter`.
    """

    __slots__ = ("ahead", "batches", "exhausted", "first_s", "last_s", "layout", "looks_ahead", "padding", "samples",
                 "shape", "stepped", "tokens", "wait_s")  # fmt: skip

    def __init__(self, looks_ahead: bool = False) -> None:
        self.layout: Layout | None = None
        self.ahead: Measured | None = None
        self.looks_ahead = looks_ahead
        self.shape: tuple[int, ...] = ()
        self.stepped = self.exhausted = False
        self.clear()

    def clear(self) -> None:
        """What was delivered has been counted."""
        self.batches = self.samples = 0
        self.tokens: int | None = None
        self.padding: int | None = None
        self.wait_s = self.last_s = 0.0
        self.first_s: float | None = None

    def began(self) -> None:
        """A new epoch begins."""
        self.exhausted = False
        self.ahead = None

    def deliver(self, measured: Measured) -> None:
        """A batch was fetched; with a reader that looks ahead, the one before it was handed on."""
        if not self.looks_ahead:
            self._add(measured)
            return
        before, self.ahead = self.ahead, measured
        if before is not None:
            self._add(before)

    def end(self) -> None:
        """There are no more batches: the one that waited is handed on."""
        self.exhausted = True
        if self.ahead is not None:
            self._add(self.ahead)
            self.ahead = None

    def keep_last(self, batches: int) -> None:
        """All but the last few were skipped on resume: keep their share."""
        if self.batches > batches:
            share = batches / self.batches
            self.batches = batches
            self.samples = round(self.samples * share)
            self.tokens = None if self.tokens is None else round(self.tokens * share)
            self.padding = None if self.padding is None else round(self.padding * share)
            self.wait_s *= share

    def _add(self, measured: Measured) -> None:
        shape, tokens, padding = measured
        self.batches += 1
        if shape:
            self.shape = shape
            self.samples += shape[0]
        if tokens is not None:
            self.tokens = tokens + (self.tokens or 0)
        if padding is not None:
            self.padding = padding + (self.padding or 0)
