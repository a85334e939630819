"""Formats numbers and sizes for the screen: fixed widths and units, rounded so that noise does not show.
Unknown is `–`, never 0.
"""

from __future__ import annotations

import math

from tuner_tui.core.units import GIB, MIB, TIB, UNKNOWN, format_share

SMALL_BYTES = 9.5 * GIB
"""Memory up to which a tenth of a GiB counts."""
PREFIXES = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3}


def count(number: int | None) -> str:
    """Return a whole number with thousands separators: `1,240`."""
    return UNKNOWN if number is None else f"{number:,}"


def significant(value: float | None) -> str:
    """Three digits: `0.42`, `3.10`, `24.8`, `512`; above that `50.2k`, `1.20M`; of a small one `0.0042`, `7e-05`."""
    if value is None:
        return UNKNOWN
    if not math.isfinite(value):
        return str(value)
    for prefix, scale in PREFIXES.items():
        if abs(value) >= scale * 0.9995:
            return _three_digits(value / scale) + prefix
    return _three_digits(value)


def _three_digits(value: float) -> str:
    size = abs(value)
    if 0 < size < 0.00995:
        return f"{value:.2g}" if size >= 0.00095 else f"{value:.0e}"
    return f"{value:.2f}" if size < 9.995 else f"{value:.1f}" if size < 99.95 else f"{value:.0f}"


def metric(value: float | None) -> str:
    """Return a loss or score with four digits, with an exponent if it is tiny: `1.8404`, `0.0173`, `3.1e-05`."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    if size >= 100_000 or 0 < size < 0.001:
        return f"{value:.1e}"
    return f"{value:.4f}" if size < 10 else f"{value:.2f}" if size < 1000 else f"{value:.0f}"


def exponent(value: float | None) -> str:
    """Return a learning rate, always in the form `4.0e-05` of constant width."""
    return UNKNOWN if value is None else f"{value:.1e}"


def gib(size_bytes: float | None) -> str:
    """Memory in GiB, one digit after the point, without the unit: `61.2`."""
    return UNKNOWN if size_bytes is None else f"{size_bytes / GIB:.1f}"


def whole_gib(size_bytes: float | None) -> str:
    """Memory in whole GiB, without the unit: `80`."""
    return UNKNOWN if size_bytes is None else f"{size_bytes / GIB:.0f}"


def capacity_gib(size_bytes: float) -> str:
    """Memory that there is, in GiB without the unit: `80`, with one digit after the point where it is small: `7.8`."""
    return whole_gib(size_bytes) if size_bytes >= SMALL_BYTES else gib(size_bytes)


def short_size(size_bytes: float | None) -> str:
    """Return a size in at most eight cells: `6.0 GiB`, `756 GiB`, `1.8 TiB`; below one in MiB."""
    if size_bytes is None:
        return UNKNOWN
    if size_bytes >= TIB:
        return f"{size_bytes / TIB:.1f} TiB"
    if size_bytes < GIB:
        return f"{size_bytes / MIB:.0f} MiB"
    return f"{size_bytes / GIB:.{0 if size_bytes >= 10 * GIB else 1}f} GiB"


def mb_s(bytes_s: float | None) -> str:
    """Return a transfer rate in whole MB/s (10⁶ bytes) without the unit; `<1` below one."""
    if bytes_s is None:
        return UNKNOWN
    return "<1" if 0 < bytes_s < 1e6 else f"{bytes_s / 1e6:,.0f}"


def share_of(part: float | None, whole: float | None) -> float | None:
    """Return the part of the whole, 0 to 1; None where either is unknown."""
    return part / whole if part is not None and whole else None


def integer(value: float | None) -> str:
    """Return a rounded number without a unit."""
    return UNKNOWN if value is None else f"{value:.0f}"


EQUAL_SPEED = 0.015
"""Speeds that differ by less are called the same: the noise between identical runs."""
LARGE_RATIO = 1.495
"""Ratios from this one on are given as a factor with one digit, smaller ones in per cent."""


def gain(ratio: float) -> str:
    """Return what a speed is against another: `1.8× faster`, `7 % faster` for a small gain, `5 % slower`."""
    if ratio >= LARGE_RATIO:
        return f"{ratio:.1f}× faster"
    return f"{format_share(abs(ratio - 1))} {'slower' if ratio < 1 else 'faster'}"
