"""Formats and parses figures with their units: sizes, durations and percentages. Unknown is `–`, never 0."""

from __future__ import annotations

import math
import re

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
UNKNOWN = "–"
_SIZE_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": KIB, "mi": MIB, "gi": GIB, "ti": TIB}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)


def format_share(part: float | None, digits: int = 0, signed: bool = False) -> str:
    """A share of 1 as a percentage: 0.314 is `31 %`, or `31.4 %` with one of `digits`, or `+31 %` with `signed`.

    A positive share that would round to nothing is `<1 %` (`<0.1 %` with one digit).
    """
    return UNKNOWN if part is None else format_percent(part * 100, digits, signed)


def format_ms(seconds: float) -> str:
    """`12.3 ms`, from one second on `1.23 s`."""
    return f"{seconds * 1000:.3g} ms" if abs(seconds) < 0.9995 else f"{seconds:.3g} s"


def format_rate(rate: float) -> str:
    """An amount a second, without an exponent: `8.82`, `147`, `12,340`."""
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"


def format_percent(value: float | None, digits: int = 0, signed: bool = False) -> str:
    """A percentage: 31.4 is `31 %`. Otherwise as `format_share`."""
    if value is None:
        return UNKNOWN
    least = 10.0**-digits
    if 0 < value < least / 2 and not signed:
        return f"<{least:.{digits}f} %"
    return f"{value:{'+' if signed else ''}.{digits}f} %"


def parse_size(text: str) -> int | None:
    """The bytes of `6GiB`, `6.5 GB`, `800M` or a plain number; None for anything else."""
    match = _SIZE.fullmatch(text.strip())
    return int(float(match[1]) * _SIZE_UNITS[(match[2] or "").lower()]) if match else None


_TIME = re.compile(r"(?:(\d+(?:\.\d+)?) ?(d|h|min|m|s) ?)+", re.ASCII)
_TIME_PART = re.compile(r"(\d+(?:\.\d+)?) ?(d|h|min|m|s)", re.ASCII)
_TIME_UNITS_S = {"d": 86400, "h": 3600, "min": 60, "m": 60, "s": 1}


def parse_duration(text: str) -> float | None:
    """The seconds of `4h`, `90 min`, `1h30m` or `45s`; None for anything else."""
    if not _TIME.fullmatch(text.strip()):
        return None
    return sum(float(number) * _TIME_UNITS_S[unit] for number, unit in _TIME_PART.findall(text))


def format_gib(size_bytes: float | None, digits: int = 1) -> str:
    """A size in GiB whatever its magnitude, so that a column compares: `61.2 GiB`, `0.4 GiB`."""
    return UNKNOWN if size_bytes is None else f"{size_bytes / GIB:.{digits}f} GiB"


def format_size(size_bytes: float | None, digits: int = 1) -> str:
    """A size in the largest unit that fits: `61.2 GiB`, `512 MiB`, `0 B`; at most `digits` decimals, three digits."""
    if size_bytes is None:
        return UNKNOWN
    for scale, unit in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= scale:
            number = size_bytes / scale
            decimals = 0 if number >= 99.95 else min(digits, 1) if number >= 9.995 else digits
            return f"{number:.{decimals}f} {unit}"
    return f"{size_bytes:.0f} B"


def format_limit(limit_bytes: int) -> str:
    """A limit with three digits: `6 GiB`, `2.79 GiB`."""
    return f"{limit_bytes / GIB:.3g} GiB"


def format_duration(seconds: float | None) -> str:
    """At most two units, coarser the longer it is: `8 s`, `4 min 12 s`, `41 min`, `3 h 05 min`, `2 d 4 h`."""
    if seconds is None:
        return UNKNOWN
    whole_s = max(0, int(seconds))
    minutes, hours, days = whole_s // 60, whole_s // 3600, whole_s // 86_400
    if whole_s < 60:
        return f"{whole_s} s"
    if minutes < 10:
        return f"{minutes} min {whole_s % 60:02d} s"
    if hours < 1:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60:02d} min" if days < 2 else f"{days} d {hours % 24} h"


def format_short_duration(seconds: float | None) -> str:
    """One unit, at most seven characters: `45 s`, `12 min`, `5.2 h`, `3.4 d`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 5400:
        return f"{int(seconds)} s" if seconds < 90 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"


def format_rough_duration(seconds: float | None) -> str:
    """An estimated duration, rounded to the precision of an estimate so that a live display does not flicker."""
    if seconds is None:
        return UNKNOWN
    # Steps of about a tenth of the value: the error of an estimate is larger, and the figure changes rarely.
    for above_s, step_s in ((3600, 300), (600, 60), (120, 30), (30, 10)):
        if seconds >= above_s:
            return format_duration(round(seconds / step_s) * step_s).removesuffix(" 00 s")
    return format_duration(math.ceil(seconds / 5) * 5)
