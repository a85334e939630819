"""Numbers as text: percentages with number, space, sign, as in `31 %`."""

from __future__ import annotations

UNKNOWN = "–"


def format_share(part: float | None, digits: int = 0, signed: bool = False) -> str:
    """A share of 1 as per cent: 0.314 is `31 %`, or `31.4 %` with one of `digits`, or `+31 %` where `signed`.

    What is there and would round to nothing is `<1 %` (`<0.1 %` with one digit). Unknown is `–`, never 0.
    """
    return UNKNOWN if part is None else format_percent(part * 100, digits, signed)


def format_percent(value: float | None, digits: int = 0, signed: bool = False) -> str:
    """A figure that is a percentage already: 31.4 is `31 %`. As `format_share` in all else."""
    if value is None:
        return UNKNOWN
    least = 10.0**-digits
    if 0 < value < least / 2 and not signed:
        return f"<{least:.{digits}f} %"
    return f"{value:{'+' if signed else ''}.{digits}f} %"
