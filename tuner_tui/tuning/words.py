"""A measurement in words, alike in a preset, in a line of text and on the screen."""

from __future__ import annotations

from tuner_tui.tuning.measurement import Measurement

GIB = 2**30


def speed_words(measured: Measurement) -> str:
    """`12,345 tokens/s` or `98.7 samples/s`; empty where nothing was measured."""
    speed = measured.throughput
    if speed is None:
        return ""
    return f"{speed:,.0f} {measured.unit}" if speed >= 1000 else f"{speed:.4g} {measured.unit}"


def memory_words(measured: Measurement) -> str:
    """`1.72 GiB`; empty where it is not known."""
    return "" if measured.peak_bytes is None else f"{measured.peak_bytes / GIB:.2f} GiB"
