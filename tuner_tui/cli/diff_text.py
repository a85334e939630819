"""The plain text of `tuner-tui diff`: both runs in columns, the ratio beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tuner_tui.runs.compare import Changed, Comparison, Differs, Figure, LossAt, OriginWords
from tuner_tui.settings.fields import format_value

NAME, CELL, CUT = 30, 22, 60
UNKNOWN = "–"
WITH_RATIO = ("samples/s", "tokens/s", "s", "B")


def report(names: Sequence[str], found: Comparison, said: Sequence[str]) -> list[str]:
    """The whole report, line by line."""
    sections = [
        [_row("", names[0], names[1]), *(f"{name}  {sentence}" for name, sentence in zip(names, said, strict=True))],
        [] if found.comparable else ["! The two trained different jobs: compare their speed and losses with care."],
        _section("Settings", map(_setting, found.settings), "the same"),
        _section("Measured", map(_figure, found.figures)),
        _section("Loss after as many samples", map(_loss, found.loss)),
        _section("Eval loss after as many samples", map(_loss, found.eval_loss)),
        _section("In effect", map(_other, found.in_effect)),
        _section("Versions", map(_other, found.versions)),
        _section("From", map(_other, found.code)),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section).split("\n")


def _section(title: str, rows: Iterable[str], none: str = "") -> list[str]:
    lines = list(rows)
    if lines:
        return [title, *lines]
    return [f"{title}: {none}"] if none else []


def _setting(row: Changed) -> str:
    origins = " → ".join(_origin(origin) for origin in (row.first_origin, row.second_origin))
    first, second = (format_value(row.name, value) or "(empty)" for value in (row.first, row.second))
    return _row(f"  {row.name}", first, second, origins)


def _figure(row: Figure) -> str:
    ratio = f"×{row.ratio:.3g}" if row.ratio is not None and row.unit in WITH_RATIO else ""
    return _row(f"  {row.name}", quantity(row.first, row.unit), quantity(row.second, row.unit), ratio)


def _loss(row: LossAt) -> str:
    difference = "" if row.first is None or row.second is None else f"{row.second - row.first:+.4f}"
    return _row(f"  {row.samples:,} samples", quantity(row.first, ""), quantity(row.second, ""), difference)


def _other(row: Differs) -> str:
    return _row(f"  {row.name}", _plain(row.first), _plain(row.second))


def quantity(value: float | None, unit: str) -> str:
    """A figure with its unit; a dash where it is unknown."""
    if value is None:
        return UNKNOWN
    match unit:
        case "share":
            return f"{value:.1%}"
        case "B":
            return f"{value / 1e9:.2f} GB"
        case "":
            return f"{value:.4f}"
        case "s":
            return f"{value:,.3f} s" if value < 10 else f"{value:,.1f} s"
        case "steps" | "samples":
            return f"{value:,.0f}"
        case _:
            return f"{value:,.1f} {unit}"


def _origin(origin: OriginWords) -> str:
    """The kind of the source, and its name where it is short: reasons of recommendations are not repeated here."""
    return origin.kind if origin.kind == "recommended" else _cut(f"{origin.kind} {origin.name}".rstrip())


def _plain(value: Any) -> str:
    return UNKNOWN if value is None else _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= CUT else f"{text[: CUT - 1]}…"


def _row(name: str, first: str, second: str, more: str = "") -> str:
    return f"{name:<{NAME}} {first:<{CELL}} {second:<{CELL}} {more}".rstrip()
