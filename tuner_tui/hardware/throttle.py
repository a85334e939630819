"""Why a card's clocks are held down, in words.

The bits are NVML's "clocks event reasons" (`nvmlClocksEventReasons` in nvml.h, called throttle reasons before driver
535).
"""

from __future__ import annotations

REASONS: tuple[tuple[int, str], ...] = (
    (0x040, "thermal slowdown (hardware)"),
    (0x020, "thermal slowdown (driver)"),
    (0x080, "power brake (power supply)"),
    (0x004, "power cap"),
    (0x008, "hardware slowdown"),
    (0x200, "board limit"),
    (0x400, "reliability limit"),
    (0x002, "application clocks set"),
    (0x010, "sync boost"),
    (0x100, "display clock setting"),
)
"""Most urgent first. Bit 0x001, an idle card resting its clocks, is no throttle and has no word."""

HARDWARE_SLOWDOWN = 0x008
HARDWARE_CAUSES = 0x040 | 0x080


def throttle_words(reasons: int) -> tuple[str, ...]:
    """The reasons in `reasons` (a bit mask) in words, most urgent first; empty when nothing holds the clocks down."""
    if reasons & HARDWARE_CAUSES:
        # NVML sets "hardware slowdown" beside its cause; alone it means that the cause is not known.
        reasons &= ~HARDWARE_SLOWDOWN
    return tuple(words for bit, words in REASONS if reasons & bit)
