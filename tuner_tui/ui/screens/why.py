"""Why a finding is believed, and what its remedy rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.containers import VerticalScroll
from textual.widgets import Static

from tuner_tui.ui.screens.dialog import Dialog
from tuner_tui.ui.screens.labelled import labelled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.widget import Widget

    from tuner_tui.ui.trouble_lines import Choice


class WhyScreen(Dialog[None]):
    """The whole of a finding and of one of its remedies."""

    def __init__(self, choice: Choice) -> None:
        super().__init__()
        self.heading = "Why"
        self._choice = choice

    def body(self) -> Iterable[Widget]:
        yield VerticalScroll(
            Static(Text(f"{self._choice.finding.sentence}\n", "bold")), Static(labelled(self._parts()))
        )

    def _parts(self) -> list[tuple[str, str | None]]:
        finding, remedy = self._choice.finding, self._choice.remedy
        parts: list[tuple[str, str | None]] = [
            ("where", finding.where),
            ("sure", finding.confidence),
            *(("seen", fact) for fact in finding.evidence),
        ]
        if remedy is not None:
            parts += [
                ("remedy", remedy.title), ("why", remedy.why), ("expect", remedy.effect),
                ("rests on", remedy.rests_on), ("source", remedy.source),
            ]  # fmt: skip
        return parts
