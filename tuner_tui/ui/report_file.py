"""The report of a run for a colleague: the card of its end as Markdown, or as one SVG or HTML file."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tuner_tui.core.text import escape_control
from tuner_tui.core.units import format_share
from tuner_tui.ui.terminal.base_widgets import themed_style
from tuner_tui.ui.theme import DARK
from tuner_tui.view.cells import Row, join_sections, plain_text
from tuner_tui.view.end_card import EndScene, end_facts, end_rows, headline, loss_chart, sentences, time_spent
from tuner_tui.view.finding_rows import finding_rows, further_evidence

WIDTH, CARD_HEIGHT = 110, 26
CHART_WIDTH, CHART_HEIGHT = 90, 14
KINDS = (".md", ".svg", ".html")
FONT_FACE = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""Fonts that Rich's picture would load from the network."""


def report_problem(name: str) -> str | None:
    """Return why no report can be written to the file `name`, or None."""
    path = Path(name).expanduser()
    if path.suffix not in KINDS:
        return f"The name ends with one of {', '.join(KINDS)}."
    if not path.parent.is_dir():
        return f"{path.parent} is not a folder."
    return f"{path} exists." if path.exists() else None


def render_report(scene: EndScene, kind: str) -> str:
    """Return the report of a run that has ended; `kind` is one of `KINDS`."""
    if kind == ".md":
        return _markdown(scene)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    variables = {
        **DARK.variables, "primary": DARK.primary, "secondary": str(DARK.secondary),
        "success": str(DARK.success), "warning": str(DARK.warning),
        "error": str(DARK.error),
    }  # fmt: skip
    for row in report_rows(scene):
        spans = ((escape_control(text), themed_style(style, variables)) for text, style in row.line)
        console.print(Text.assemble(*spans), no_wrap=True, overflow="crop")
    theme = TerminalTheme((15, 19, 23), (211, 217, 224), [(0, 0, 0)] * 8)
    title = escape_control(f"{scene.name} {scene.title}".strip())
    if kind == ".svg":
        return FONT_FACE.sub("", console.export_svg(title=title, theme=theme))
    return console.export_html(theme=theme, inline_styles=True)


def report_rows(scene: EndScene) -> list[Row]:
    """Return the card without the keys of the screen, and the findings below it."""
    findings = [row for row, _ in finding_rows(scene.findings, -1, WIDTH)]
    return join_sections([end_rows(scene, WIDTH, CARD_HEIGHT, keys=False), findings])


def _markdown(scene: EndScene) -> str:
    first, name, *rest = (span.text for span in headline(scene))
    parts = [f"# {name}", f"**{first}** · {' · '.join(rest)}", *sentences(scene)]
    parts.append(_table(("", ""), [(fact.label, fact.text) for fact in end_facts(scene)]))
    if chart := loss_chart(scene, CHART_WIDTH, CHART_HEIGHT):
        parts.append("\n".join(["```text", *(plain_text(row.line).rstrip() for row in chart), "```"]))
    shares = [(part, format_share(share)) for part, share in time_spent(scene.state)]
    parts.append(_table(("time", "share"), shares))
    for finding in scene.findings:
        remedies = (f"- {': '.join(filter(None, (remedy.title, remedy.expectation)))}" for remedy in finding.remedies)
        parts.append(
            "\n".join([f"**{finding.sentence}** {' · '.join(further_evidence(finding))}".rstrip(), "", *remedies])
        )
    return escape_control("\n\n".join(filter(None, parts))) + "\n"


def _table(heads: tuple[str, str], rows: Sequence[tuple[str, str]]) -> str:
    """Return a table of Markdown; empty without rows."""
    lines = [" | ".join(text.replace("|", r"\|") for text in row) for row in (heads, *rows)]
    lines.insert(1, "--- | ---")
    return "\n".join(f"| {text} |" for text in lines) if rows else ""
