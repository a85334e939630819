"""The troubleshooting panel: findings with their evidence, and remedies that can be applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.events import Click, Resize
from textual.message import Message
from textual.reactive import reactive

from tuner_tui.ui.keys import KEYS
from tuner_tui.ui.terminal.base_widgets import Canvas
from tuner_tui.view.cells import Line
from tuner_tui.view.finding_rows import (
    HEADS,
    ChoiceRow,
    FindingChoice,
    brief_rows,
    by_severity,
    choices,
    finding_rows,
    first_choice,
    good_rows,
    headline,
)

if TYPE_CHECKING:
    from tuner_tui.advice.finding import Finding


class TroubleshootingPanel(Canvas, can_focus=True):
    """Shows findings and their remedies, one of which is selected; `quiet_line` is shown without findings."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["troubles"], *KEYS["remedy"]]

    findings: reactive[tuple[Finding, ...]] = reactive((), init=False, repaint=False)
    quiet_line: reactive[str] = reactive("", init=False, repaint=False)
    selected: reactive[int] = reactive(0, init=False, repaint=False)
    running: reactive[bool] = reactive(False, init=False, repaint=False)

    class RowsChanged(Message):
        """The panel needs another height."""

    @property
    def choice(self) -> FindingChoice | None:
        return next(reversed(choices(self.findings)[: self.selected + 1]), None)

    @property
    def wanted_rows(self) -> int:
        return len(finding_rows(self.findings, self.selected, self.size.width, running=self.running))

    @property
    def quiet_rows(self) -> int:
        return len(good_rows(self.quiet_line, self.size.width))

    def validate_selected(self, selected: int) -> int:
        return max(0, min(selected, len(choices(self.findings)) - 1))

    def watch_findings(self, old: tuple[Finding, ...], new: tuple[Finding, ...]) -> None:
        # Their remedies may be known only later than the findings: until somebody moves it, the cursor follows.
        if [f.cause for f in old] != [f.cause for f in new] or self.selected == first_choice(old):
            self.selected = first_choice(new)
        self.set_class(any(finding.severity == "failed" for finding in new), "-failed")
        self.set_class(any(finding.severity == "warning" for finding in new), "-warning")
        self.redraw()
        self._show_hidden()

    def watch_selected(self) -> None:
        self._scroll()
        self.redraw()

    def _scroll(self) -> None:
        """Show the choice to its last row, or from its first: signs may stand for the rows at either end."""
        rows = self._rows()
        at = [at for at, (_, choice) in enumerate(rows) if choice == self.selected] or [0]
        top = at[-1] - self.size.height + 1 + (at[-1] < len(rows) - 1)
        self.top = max(0, min(top, at[0] - 1))

    def _window(self, rows: list[Line], height: int) -> list[Line]:
        """Keep the headline of the finding in sight while its remedies are scrolled: over those of no other finding."""
        shown, choice = super()._window(rows, height), self.choice
        begun = sum(row[:1] in HEADS for row in rows[: self.top + 1])
        if self.top and height > 1 and choice is not None and begun > by_severity(self.findings).index(choice.finding):
            shown[0] = headline(choice.finding, self.size.width)
        return shown

    def watch_quiet_line(self) -> None:
        self.redraw()
        self._show_hidden()

    def on_resize(self, _event: Resize) -> None:
        self._scroll()
        self._show_hidden()

    def _show_hidden(self) -> None:
        """Say below rows that have no room how many findings there are, and by which keys the rest is reached."""
        self.post_message(self.RowsChanged())
        count, hidden = len(self.findings), len(self._rows()) > self.size.height > 0
        self.border_subtitle = f"{count} finding{'s' * (count > 1)} · 3 then ↓ for the rest" if hidden else ""

    def on_click(self, event: Click) -> None:
        rows, at = self._rows(), event.y - 1 + self.top
        if 0 <= at < len(rows) and (choice := rows[at][1]) is not None:
            self.selected = choice

    def on_mouse_scroll_down(self) -> None:
        self.selected += 1

    def on_mouse_scroll_up(self) -> None:
        self.selected -= 1

    def action_move(self, by: int) -> None:
        self.selected += by

    def rows(self, width: int, height: int) -> Sequence[Line]:
        return [row for row, _ in self._rows()]

    def _rows(self) -> list[ChoiceRow]:
        width = self.size.width
        if not self.findings:
            return [(row, None) for row in good_rows(self.quiet_line, width)]
        if self.has_class("-brief"):
            return brief_rows(self.findings, self.selected, width)
        return finding_rows(self.findings, self.selected, width, self.size.height, self.running)
