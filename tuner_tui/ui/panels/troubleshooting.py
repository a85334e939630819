"""The troubleshooting panel: findings with their evidence as lines, and remedies that can be applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from rich.text import Text
from textual.containers import VerticalScroll
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Static

from tuner_tui.core.text import wrap_text
from tuner_tui.ui.keys import TROUBLES_KEYS
from tuner_tui.view.cells import shorten, text_width

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.events import Click, Resize

    from tuner_tui.advice.finding import Finding, Remedy

FindingTone = Literal["", "quiet", "failed", "warning", "hint", "good", "keys", "title"]
TonedText = tuple[str, FindingTone]
MARKS = {"failed": "●", "warning": "●", "hint": "○"}
WEIGHT = {"failed": 0, "warning": 1, "hint": 2}
KEYS = "[a]pply  [d]iff  [w]hy"
LOOK_KEYS = "[w]hy"
GAP = "   "
ROOM_FOR_KEYS = 48


class FindingChoice(NamedTuple):
    """What can be selected: a remedy, or a finding without remedies."""

    finding: Finding
    remedy: Remedy | None


class FindingLine(NamedTuple):
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


TONES = ("quiet", "failed", "warning", "hint", "good", "keys", "title")


class TroubleshootingPanel(VerticalScroll, can_focus=True):
    """Shows findings and their remedies, one of which is selected. `quiet_line` is shown without findings, and
    `outcome_line`, the result of a run, above them.
    """

    DEFAULT_CSS = """
    TroubleshootingPanel {
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        Static { width: 1fr; height: auto; }
        .troubles--quiet { color: $quiet; }
        .troubles--failed { color: $error; text-style: bold; }
        .troubles--warning { color: $warning; text-style: bold; }
        .troubles--hint { color: $primary; }
        .troubles--good { color: $success; }
        .troubles--keys { color: $primary; text-style: bold; }
        .troubles--title { text-style: bold; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"troubles--{tone}" for tone in TONES}
    BINDINGS: ClassVar[list[BindingType]] = list(TROUBLES_KEYS)

    findings: reactive[tuple[Finding, ...]] = reactive((), init=False, repaint=False)
    quiet_line: reactive[str] = reactive("", init=False, repaint=False)
    outcome_line: reactive[str] = reactive("", init=False, repaint=False)
    selected: reactive[int] = reactive(0, init=False, repaint=False)

    class RowsChanged(Message):
        """The panel needs another height."""

    def compose(self) -> ComposeResult:
        yield Static()

    def on_mount(self) -> None:
        self._lines: tuple[FindingLine, ...] = ()

    @property
    def choice(self) -> FindingChoice | None:
        """The remedy, or finding without one, under the cursor."""
        all_choices = choices(self.findings)
        return all_choices[min(self.selected, len(all_choices) - 1)] if all_choices else None

    @property
    def wanted_rows(self) -> int:
        """Rows of all findings; 0 without findings."""
        return len(self._lines) if self.findings else 0

    @property
    def quiet_rows(self) -> int:
        """Rows of the text shown without findings."""
        return len(self._quiet())

    def validate_selected(self, selected: int) -> int:
        return max(0, min(selected, len(choices(self.findings)) - 1))

    def watch_findings(self, old: tuple[Finding, ...], new: tuple[Finding, ...]) -> None:
        self.selected = self.selected if [f.cause for f in old] == [f.cause for f in new] else 0
        self.set_class(any(finding.severity == "failed" for finding in new), "-failed")
        self.set_class(any(finding.severity == "warning" for finding in new), "-warning")
        self._draw()

    def watch_selected(self) -> None:
        self._draw()
        line = next((i for i, line in enumerate(self._lines) if line.choice == self.selected), 0)
        self.scroll_to(y=max(0, line - self.size.height + 1), animate=False)

    def watch_quiet_line(self) -> None:
        self._draw()
        self.post_message(self.RowsChanged())

    def watch_outcome_line(self) -> None:
        self._draw()

    def on_resize(self, event: Resize) -> None:
        self._draw()

    def on_click(self, event: Click) -> None:
        line = event.y + int(self.scroll_y) - 1
        if 0 <= line < len(self._lines) and (number := self._lines[line].choice) is not None:
            self.selected = number

    def action_move(self, by: int) -> None:
        self.selected += by

    def _draw(self) -> None:
        if not self.is_attached:
            return
        wanted = self.wanted_rows
        width = max(10, self.scrollable_content_region.width)
        self._lines = outcome_lines(self.outcome_line, width) + finding_lines(self.findings, self.selected, width)
        self.query_one(Static).update(self._text())
        if self.wanted_rows != wanted:
            self.post_message(self.RowsChanged())

    def _text(self) -> Text:
        if not self.findings:
            text = Text("\n".join(self._quiet()), self._style("quiet"), no_wrap=True)
            return Text.assemble(("✓ ", self._style("good")), text)
        lines = [
            Text.assemble(*((text, self._style(tone) if tone else "") for text, tone in line.spans), no_wrap=True)
            for line in self._lines
        ]
        return Text("\n").join(lines)

    def _quiet(self) -> list[str]:
        room = max(10, self.scrollable_content_region.width - 2)
        parts = [part for line in self.quiet_line.split("\n") for part in wrap_text(line, room)]
        return [part if i == 0 else f"  {part}" for i, part in enumerate(parts)]

    def _style(self, tone: str) -> str:
        return str(self.get_component_rich_style(f"troubles--{tone}", partial=True))
