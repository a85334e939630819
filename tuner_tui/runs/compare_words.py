"""The figures of a comparison in words: the same on the command line and on the screen."""

from __future__ import annotations

from typing import Any

from tuner_tui.core.units import UNKNOWN, format_share
from tuner_tui.runs.compare import Figure, LossAt, OriginWords

WITH_RATIO = ("samples/s", "tokens/s", "s", "B")
"""Units of which a ratio says something."""


def quantity(value: float | None, unit: str) -> str:
    """A figure with its unit; a dash where it is unknown."""
    if value is None:
        return UNKNOWN
    match unit:
        case "share":
            return format_share(value, digits=1)
        case "B":
            return f"{value / 2**30:.2f} GiB"
        case "":
            return f"{value:.4f}"
        case "s":
            return "0 s" if not value else f"{value:,.3f} s" if value < 10 else f"{value:,.1f} s"
        case "steps" | "samples":
            return f"{value:,.0f}"
        case _:
            return f"{value:,.1f} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


def ratio(row: Figure) -> str:
    """`×1.24`, the second over the first; empty where it would say nothing."""
    return f"×{row.ratio:.3g}" if row.ratio is not None and row.unit in WITH_RATIO else ""


def difference(row: LossAt) -> str:
    """The second loss less the first, with its sign."""
    return "" if row.first is None or row.second is None else f"{row.second - row.first:+.4f}"


def origin(words: OriginWords, most: int) -> str:
    """The kind of the source, and its name where it is short: reasons of recommendations are not repeated here."""
    return words.kind if words.kind == "recommended" else cut(f"{words.kind} {words.name}".rstrip(), most)


def plain(value: Any, most: int) -> str:
    """Anything else that differs, in at most `most` characters."""
    return UNKNOWN if value is None else cut(str(value), most)


def cut(text: str, most: int) -> str:
    """`text`, its end replaced by `…` where it is longer than `most`."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
