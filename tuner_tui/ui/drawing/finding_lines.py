"""Findings and their remedies as lines of styled text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tuner_tui.core.text import wrap_text
from tuner_tui.ui.drawing.cells import shorten, text_width

if TYPE_CHECKING:
    from tuner_tui.advice.finding import Finding, Remedy

FindingTone = Literal["", "quiet", "failed", "warning", "hint", "good", "keys", "title"]
TonedText = tuple[str, FindingTone]
MARKS = {"failed": "●", "warning": "●", "hint": "○"}
WEIGHT = {"failed": 0, "warning": 1, "hint": 2}
KEYS = "[a]pply  [d]iff  [w]hy"
LOOK_KEYS = "[w]hy"
GAP = "   "
ROOM_FOR_KEYS = 48


@dataclass(frozen=True, slots=True)
class FindingChoice:
    """What can be selected: a remedy, or a finding without remedies."""

    finding: Finding
    remedy: Remedy | None


@dataclass(frozen=True, slots=True)
class FindingLine:
    """One line; `choice` is the index of its choice, None on the lines of a finding with remedies."""

    spans: tuple[TonedText, ...]
    choice: int | None = None


def sort_by_severity(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings, most severe first."""
    return tuple(sorted(findings, key=lambda finding: WEIGHT[finding.severity]))


def choices(findings: Sequence[Finding]) -> tuple[FindingChoice, ...]:
    """Return all choices in display order."""
    return tuple(
        FindingChoice(finding, remedy)
        for finding in sort_by_severity(findings)
        for remedy in (finding.remedies or (None,))
    )


def outcome_lines(outcome: str, width: int) -> tuple[FindingLine, ...]:
    """Return the result of a run with its mark."""
    parts = [part for line in outcome.split("\n") if line for part in wrap_text(line, max(10, width - 2))]
    return tuple(
        FindingLine((("✓ ", "good") if i == 0 else ("  ", ""), (part, "quiet"))) for i, part in enumerate(parts)
    )


def finding_lines(findings: Sequence[Finding], selected: int, width: int) -> tuple[FindingLine, ...]:
    """Return the lines for `width` cells, with the keys at the selected choice."""
    lines: list[FindingLine] = []
    number = 0
    for finding in sort_by_severity(findings):
        own = number if not finding.remedies else None
        lines.extend(_finding_lines(finding, own, selected, width))
        number += 1 if own is not None else 0
        for remedy in finding.remedies:
            lines.extend(_remedy_lines(remedy, number, number == selected, width))
            number += 1
    return tuple(lines)


def _finding_lines(finding: Finding, own: int | None, selected: int, width: int) -> list[FindingLine]:
    mark: TonedText = (f"{MARKS[finding.severity]} ", finding.severity)
    evidence = " · ".join(finding.evidence)
    doubt = "" if finding.confidence == "certain" else f" ({finding.confidence})"
    head = f"{finding.sentence}{doubt}"
    keys = LOOK_KEYS if own is not None and own == selected else ""
    room = width - 2 - (len(keys) + 2 if keys else 0)
    if evidence and text_width(head) + len(GAP) + text_width(evidence) <= room:
        middle = text_width(head) + len(GAP) + text_width(evidence)
        spans: tuple[TonedText, ...] = (
            mark,
            (head, "title"),
            (GAP + evidence, "quiet"),
            (" " * (room - middle), ""),
            (keys, "keys"),
        )
        return [FindingLine(spans, own)]
    first, *more = wrap_lines(head, room)
    lines = [FindingLine((mark, (first, "title"), (keys and "  " + keys, "keys")), own)]
    lines += [FindingLine((("  " + part, "title"),), own) for part in more]
    if evidence:
        lines.append(FindingLine((("  " + shorten(evidence, width - 2), "quiet"),), own))
    return lines


def _remedy_lines(remedy: Remedy, number: int, selected: bool, width: int) -> list[FindingLine]:
    keys = (KEYS if remedy.can_apply else LOOK_KEYS) if selected and width >= ROOM_FOR_KEYS else ""
    room = max(8, width - 4 - (len(keys) + 2 if keys else 0))
    rest = " · ".join(part for part in (remedy.expectation, remedy.rests_on) if part)
    title, *more = wrap_lines(remedy.title, room)
    left = room - text_width(title) - len(GAP)
    details = GAP + shorten(rest, left) if rest and left > 12 and not more else ""
    padding = " " * (room - text_width(title) - text_width(details)) if keys else ""
    mark = "  ▸ " if selected else "  · "
    spans: tuple[TonedText, ...] = (
        (mark, "keys" if selected else "quiet"),
        (title, ""),
        (details, "quiet"),
        (padding + ("  " + keys if keys else ""), "keys"),
    )
    return [FindingLine(spans, number), *(FindingLine((("    " + part, ""),), number) for part in more)]


def wrap_lines(text: str, width: int) -> list[str]:
    """Wrap `text` to `width` cells; words that are too long are shortened."""
    return [shorten(part, width) for part in wrap_text(text, max(8, width), break_long_words=False)] or [""]
