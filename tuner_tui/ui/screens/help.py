"""The help screen, rendered from the bindings with a glossary. It is opened before the settings are imported."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget

from tuner_tui.ui.keys import KEYS, key_label
from tuner_tui.ui.screens.dialogs import Dialog
from tuner_tui.ui.terminal.base_widgets import RowsPanel
from tuner_tui.view.cells import Line, TextSpan, join_sections, labelled_flow, labelled_rows, line, text_width

NOT_NOW = "Not possible now"
MOVEMENT_KEYS = frozenset({"up", "down", "page-up", "page-down", "first", "last", "start", "left", "right"})
"""Bindings left out because one line of the glossary covers all cursor keys."""


class HelpScreen(Dialog[None]):
    """Shows the name of each of `keys` by group, those in `idle` last, then the `glossary`."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["help"]]
    heading = "Help"

    def __init__(
        self, keys: Sequence[Binding], glossary: Sequence[tuple[str, str]], idle: Collection[str] = ()
    ) -> None:
        super().__init__()
        self._palette = any(key.action == "app.command_palette" for key in keys)
        self.hint = f"↑ ↓ scroll · {'ctrl+p explains each action · ' * self._palette}esc back"
        self._panel = RowsPanel(help_rows, help_groups(keys, idle), glossary)

    def body(self) -> Iterable[Widget]:
        yield VerticalScroll(self._panel)

    def action_palette(self) -> None:
        """Open the command palette in place of the help, where the screen below has one."""
        if self._palette:
            self.dismiss()
            self.app.call_later(self.app.run_action, "command_palette")


def help_groups(keys: Sequence[Binding], idle: Collection[str] = ()) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return (group, [(first key, name)]), groups in the order of their first key, the actions in `idle` last."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for key in sorted(keys, key=lambda key: key.action in idle):
        entry, group = (key_label(key.key.split(",")[0]), key.description), key.group.description if key.group else ""
        if not moves_cursor(key) and not any(entry in listed for listed in groups.values()):
            groups.setdefault(NOT_NOW if key.action in idle else group, []).append(entry)
    return list(groups.items())


def moves_cursor(key: Binding) -> bool:
    return (key.id or "").rpartition(".")[2] in MOVEMENT_KEYS


def help_rows(
    groups: Sequence[tuple[str, Sequence[tuple[str, str]]]], glossary: Sequence[tuple[str, str]], width: int
) -> list[Line]:
    """Return the keys of each group on as few lines as they need, then the glossary."""
    label = max(text_width(name) for name, _ in (*groups, *glossary)) + 2
    rows: list[Line] = []
    for heading, keys in groups:
        names = (line(TextSpan(key, "strong"), f" {name}") for key, name in keys)
        rows += labelled_flow(heading, names, width, labels=label)
    return join_sections([rows, [row for term in glossary for row in labelled_rows(*term, width, labels=label)]])
