"""Bounded series over a whole run, for plots and sparklines, whatever its length."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one figure: `xs` ascending (steps or seconds), `ys` of equal length; a gap is None."""

    name: str
    unit: str
    xs: tuple[float, ...] = ()
    ys: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """What is plotted of a run, over its steps; each at most some hundred points, thinned over the whole run.

    `memory_bytes` is the peak summed over the ranks: what the allocator reserved on the GPU, or on a CPU the process's
    resident memory.
    """

    loss: Series = Series("loss", "")
    eval_loss: Series = Series("eval loss", "")
    samples_s: Series = Series("throughput", "samples/s")
    memory_bytes: Series = Series("peak memory", "B")
