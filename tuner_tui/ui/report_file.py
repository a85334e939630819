"""The report of a run for a colleague: the card of its end as Markdown, or as one SVG or HTML file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from tuner_tui.core.text import escape_control
from tuner_tui.ui.palette import DARK_COLOURS, DARK_VARIABLES
from tuner_tui.ui.terminal.base_widgets import VARIABLES
from tuner_tui.view import end_card
from tuner_tui.view.cells import (
    BAD,
    Line,
    Style,
    TextSpan,
    join_sections,
    line,
    plain_text,
    side_by_side,
    text_width,
    wrapped_rows,
)
from tuner_tui.view.charts import FEW_POINTS, Curve, axis_ends, axis_labels, axis_levels, axis_share, end_label
from tuner_tui.view.end_card import EndScene
from tuner_tui.view.finding_rows import MARKS, further_evidence
from tuner_tui.view.loss_chart import LossScene, loss_drawing

if TYPE_CHECKING:
    from tuner_tui.advice.finding import Finding

WIDTH, FACTS_WIDTH = 110, 66
FACTS = (end_card.end_facts, end_card.about_facts)
CHART_WIDTH, CHART_HEIGHT = 90, 14
KINDS = (".md", ".svg", ".html")
CELL, ROW, MARGIN = 8.4, 20, 24
"""Pixels of a picture: of a character of 14, of a line of text, and of its margin."""
LEFT, CHART_ROWS = 56, 14
DASHES = {"dashed": "7 6", "dotted": "2 5"}
SHAPES = {"◆": "m0-6 6 6-6 6-6-6z", "◇": "m0-5 5 5-5 5-5-5z", "▴": "m0-6 5 9h-10z", BAD: "m-4-4 8 8m0-8-8 8"}
"""Paths of the signs of marks."""
SHADE = (
    f'<linearGradient id="shade" x2="0" y2="1"><stop stop-color="{DARK_COLOURS["primary"]}" stop-opacity=".35"/>'
    f'<stop offset="1" stop-color="{DARK_COLOURS["primary"]}" stop-opacity="0"/></linearGradient>'
)
"""Of the area below a curve: it fades to the bottom."""
STROKES = re.compile("([─━▏]+)")


def report_problem(name: str) -> str | None:
    """Return why no report can be written to the file `name`, or None."""
    path = Path(os.path.expanduser(name))  # noqa: PTH111  the methods of a path raise for names that no file can have
    if path.suffix not in KINDS:
        return f"The name ends with one of {', '.join(KINDS)}."
    if not os.path.isdir(path.parent):  # noqa: PTH112
        return f"{path.parent} is not a folder."
    return f"{path} exists." if os.path.exists(path) else None  # noqa: PTH110


def render_report(scene: EndScene, kind: str) -> str:
    """Return the report of a run that has ended; `kind` is one of `KINDS`."""
    if kind == ".md":
        return _markdown(scene)
    picture, title = _picture(scene), _text(f"{scene.name} {scene.title}".strip())
    if kind == ".svg":
        return picture
    page = f'<!DOCTYPE html><html><meta charset="utf-8"><title>{title}</title><body style="margin:0;background:'
    return f'{page}{_colour("background")}">{picture}</body></html>\n'


def _picture(scene: EndScene) -> str:
    """Return the report as SVG: lines, bars and dots are shapes and each text has its place, whatever the font."""
    left, right = (end_card.fact_rows(facts(scene), FACTS_WIDTH - 2) for facts in FACTS)
    fact_rows = side_by_side(left, right, FACTS_WIDTH)
    findings = [row for finding in scene.findings for row in _finding_rows(finding)]
    above, loss = end_card.head_rows(scene, WIDTH), end_card.loss_scene(scene)
    below = join_sections([fact_rows, end_card.bar_rows(scene, WIDTH), findings])
    parts = [*_rows(above, MARGIN)]
    top = MARGIN + ROW * (len(above) + 1)
    if loss is not None:
        parts += _chart(loss, top)
        top += ROW * (CHART_ROWS + 2)
    parts += _rows(below, top)
    width, height = round(WIDTH * CELL) + 2 * MARGIN, top + ROW * len(below) + MARGIN
    style = "font:14px ui-monospace,Menlo,Consolas,&quot;DejaVu Sans Mono&quot;,monospace"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'style="{style};white-space:pre;max-width:100%">'
        f'<rect width="100%" height="100%" fill="{_colour("background")}"/>{SHADE}{"".join(parts)}</svg>\n'
    )


def _finding_rows(finding: Finding) -> list[Line]:
    texts: list[tuple[str, Style]] = [(finding.headline, "strong")]
    texts += [(fact, "dim") for fact in further_evidence(finding)]
    texts += [(f"▸ {remedy}", "") for remedy in _remedies(finding)]
    rows = [row for text, style in texts for row in wrapped_rows(text, WIDTH - 2, style)]
    return [line(TextSpan(*MARKS[finding.severity]) if n == 0 else "  ", *row) for n, row in enumerate(rows)]


def _remedies(finding: Finding) -> list[str]:
    return [": ".join(filter(None, (remedy.title, remedy.expectation))) for remedy in finding.remedies]


COLOURS: Mapping[str, str] = DARK_COLOURS | DARK_VARIABLES


def _colour(style: str) -> str:
    base = style.rpartition("-")[2]
    return COLOURS.get(VARIABLES.get(base, base), COLOURS["foreground"])


def _text(text: str) -> str:
    from html import escape  # 0.5 MB of names of characters

    return escape(escape_control(text))


def _rows(rows: Sequence[Line], top: float) -> Iterator[str]:
    """Yield the rows: each text at its cell, bars as rectangles."""

    def rectangle(x: float, y: float, width: float, height: float) -> str:
        return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" fill="{colour}"/>'

    for y, row in enumerate(rows):
        x, middle = float(MARGIN), top + ROW * (y + 0.5)
        for text, style in row:
            colour, filled = _colour(style), style.startswith("fill-")
            if filled:
                yield rectangle(x + 1, middle - 9, CELL * text_width(text) - 1, 18)
            for part in STROKES.split(text):
                width = CELL * text_width(part)
                if part[:1] in ("─", "━"):
                    yield rectangle(x, middle, width, 1)
                elif part.strip() and part != "▏":
                    ink = _colour("background") if filled else colour
                    weight = ' font-weight="bold"' if style == "strong" else ""
                    start = x + CELL * (len(part) - len(part.lstrip()))
                    yield f'<text x="{start:.1f}" y="{middle + 5}" fill="{ink}"{weight}>{_text(part.strip())}</text>'
                x += width


def _chart(loss: LossScene, top: float) -> Iterator[str]:
    """Yield the loss: axes with their labels, curves as lines, raw losses as dots, and marks."""
    curves, axes, marks = loss_drawing(loss)
    end, low, high = axis_ends(curves, axes)
    left, width, height = MARGIN + LEFT, WIDTH * CELL - LEFT, ROW * CHART_ROWS

    def pixels(x: float, y: float) -> tuple[float, float]:
        return left + width * x / end, top + height * (1 - axis_share(y, low, high))

    def label(x: float, y: float, text: str, anchor: str, style: Style = "dim") -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" fill="{_colour(style)}" text-anchor="{anchor}">{_text(text)}</text>'

    levels = axis_levels(low, high)
    for level, text in zip(levels, axis_labels(levels, axes.number), strict=True):
        y = pixels(0, level)[1]
        yield label(left - 8, y + 5, text, "end")
        yield f'<path d="M{left} {y:.1f}h{width:.1f}" stroke="{COLOURS["frame"]}"/>'
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        text = f"{end_label(end, axes)} {axes.unit}" if share == 1.0 else f"{share * end:,.0f}"
        yield label(left + width * share, top + height + ROW, text, anchor)
    for curve in curves:
        pairs = zip(curve.xs, curve.ys, strict=True)
        yield from _curve(curve, [None if y is None else pixels(x, y) for x, y in pairs], top + height)
    for mark in marks:
        x, y = pixels(mark.x, mark.y)
        if mark.text in SHAPES:
            fill = "none" if mark.text in ("◇", BAD) else _colour(mark.style)
            yield f'<path d="M{x:.1f} {y:.1f}{SHAPES[mark.text]}" fill="{fill}" stroke="{_colour(mark.style)}"/>'
        else:
            yield label(x, y - 8 if y > top + ROW else y + ROW, mark.text, "end", mark.style)


def _curve(curve: Curve, points: Sequence[tuple[float, float] | None], foot: float) -> Iterator[str]:
    """Yield a curve in pixels: dots, or lines between its gaps, which are None, the measured one over a light area."""
    colour, measured = _colour(curve.style), [point for point in points if point is not None]
    is_line = curve.pattern == "line"
    if curve.pattern == "points" or (is_line and len(measured) < FEW_POINTS):
        radius = 3 if is_line else 1.5
        yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>' for x, y in measured)
    if curve.pattern == "points":
        return
    width, dash = (2, "") if is_line else (1.5, f' stroke-dasharray="{DASHES[curve.pattern]}"')
    for _, part in groupby(points, lambda point: point is None):
        joined = [point for point in part if point is not None]
        pairs = " ".join(f"{x:.1f},{y:.1f}" for x, y in joined)
        if joined and is_line:
            yield f'<path d="M{joined[0][0]:.1f},{foot}L{pairs}V{foot}z" fill="url(#shade)"/>'
        if joined:
            yield f'<polyline points="{pairs}" fill="none" stroke="{colour}" stroke-width="{width}"{dash}/>'


def _markdown(scene: EndScene) -> str:
    first, name, *rest = (span.text for span in end_card.headline(scene))
    parts = [f"# {name}", f"**{first}** · {' · '.join(rest)}", *end_card.sentences(scene)]
    parts += [_table(("", ""), [fact[:2] for fact in facts(scene)]) for facts in FACTS]
    charts = (end_card.loss_chart(scene, CHART_WIDTH, CHART_HEIGHT), end_card.bar_rows(scene, CHART_WIDTH))
    parts += ["\n".join(["```text", *(plain_text(row).rstrip() for row in rows), "```"]) for rows in charts if rows]
    for finding in scene.findings:
        remedies = "\n".join(f"- {remedy}" for remedy in _remedies(finding))
        parts += [f"**{finding.headline}**", " · ".join(further_evidence(finding)), remedies]
    return escape_control("\n\n".join(filter(None, parts))) + "\n"


def _table(heads: tuple[str, str], rows: Sequence[tuple[str, str]]) -> str:
    """Return a table of Markdown; empty without rows."""
    lines = [" | ".join(text.replace("|", r"\|") for text in row) for row in (heads, *rows)]
    lines.insert(1, "--- | ---")
    return "\n".join(f"| {text} |" for text in lines) if rows else ""
