"""What the iterators of DataLoaders delivered: each since the last optimizer step, and all of them to the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .batches import NO_LAYOUT
from .importing import call_safely

if TYPE_CHECKING:
    from collections.abc import Callable

    from .batches import Layout, Measured


FADES = 63 / 64
"""What a mask counted before weighs beside the newest."""


class Source:
    """One iterator of a loader.

    `looks_ahead`: its reader fetches one batch more than it hands on (accelerate does); that batch waits in `ahead`.
    `stepped`: an optimizer step followed one of its batches at some time. `elsewhere`: another thread than the
    training's reads it. `estimated`: not all its tokens were counted, some were estimated. `on_trained` is called once
    when its batches prove to be training's. Times are those of `perf_counter`.
    """

    __slots__ = ("_elements", "_real", "ahead", "batches", "elsewhere", "estimated", "exhausted", "first_s", "last_s",
                 "layout", "looks_ahead", "on_trained", "padding", "samples", "shape", "stepped", "tokens",
                 "wait_s")  # fmt: skip

    def __init__(self, looks_ahead: bool = False) -> None:
        self.layout: Layout = NO_LAYOUT
        self.ahead: Measured | None = None
        self.looks_ahead = looks_ahead
        self.on_trained: Callable[[], None] | None = None
        self.shape: tuple[int, ...] = ()
        self.stepped = self.exhausted = self.estimated = self.elsewhere = False
        self._real = self._elements = 0.0
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

    def counted(self, measured: Measured) -> Measured:
        """With its tokens counted where it holds a mask: elements that are not 0, for a packed mask may number samples.

        A mask that was taken in part or passed over is estimated: by its own rows, or by the share of real tokens in
        those counted lately.
        """
        shape, mask, elements = measured
        if not elements or type(mask) is int:
            return measured
        if mask is None:
            self.estimated = True
            real = round(elements * self._real / self._elements) if self._elements else elements
        else:
            taken = mask.numel()
            self.estimated = self.estimated or taken < elements
            real = int(int(mask.count_nonzero()) * elements / taken + 0.5)
            self._real, self._elements = self._real * FADES + real, self._elements * FADES + elements
        return shape, real, elements - real

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


class Tally:
    """What was trained on since the start of this process."""

    def __init__(self) -> None:
        self._batches = self._samples = 0
        self._tokens: int | None = None
        self._padding: int | None = None
        self._estimated = False
        self._wait_s = 0.0
        self._shape: tuple[int, ...] = ()

    def add(self, source: Source) -> None:
        """A step was made with what this source delivered."""
        source.stepped = True
        if source.on_trained is not None:
            call_safely(source.on_trained)
            source.on_trained = None
        self._batches += source.batches
        self._samples += source.samples
        self._wait_s += source.wait_s
        if source.shape:
            self._shape = source.shape
        if source.tokens is not None:
            self._tokens = source.tokens + (self._tokens or 0)
        if source.padding is not None:
            self._padding = source.padding + (self._padding or 0)
        self._estimated = self._estimated or source.estimated

    def fields(self) -> dict[str, Any]:
        """Those of a `steps` line."""
        return {
            "micro_steps": self._batches,
            "samples": self._samples,
            "tokens": self._tokens,
            "padding_tokens": self._padding,
            "tokens_estimated": self._estimated or None,
            "data_wait_s": round(self._wait_s, 6),
            "batch_shape": [int(size) for size in self._shape] or None,
        }
