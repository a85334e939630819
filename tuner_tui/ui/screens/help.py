"""The help screen, rendered from the bindings with a glossary, and the command palette, which runs one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from tuner_tui.ui.keys import key_label
from tuner_tui.ui.screens.dialogs import Dialog, label_table
from tuner_tui.ui.screens.pickers import PickerItem, PickScreen

MOVEMENT_KEYS = frozenset({"up", "down", "page-up", "page-down", "first", "last", "start", "left", "right"})
"""Bindings left out because one line of the glossary covers all cursor keys."""


class HelpScreen(Dialog[None]):
    """Lists `keys` by group, then the `glossary`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1,q", "leave", "Back", id="help.leave", show=False),
    ]
    heading = "Help"
    hint = "↑ ↓ scroll · esc back"

    def __init__(self, keys: Sequence[Binding], glossary: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._keys = keys
        self._glossary = glossary

    def body(self) -> Iterable[Widget]:
        groups = [*help_groups(self._keys), ("Glossary", self._glossary)]
        width = max(len(written) for _, rows in groups for written, _ in rows)
        yield VerticalScroll(*(part for heading, rows in groups for part in self._group(heading, rows, width)))

    def _group(self, heading: str, rows: Sequence[tuple[str, str]], width: int) -> Iterable[Widget]:
        yield Static(Text(heading, "bold"))
        yield Static(label_table(rows, width, quiet=False), classes="rows")


def help_groups(keys: Sequence[Binding]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return (group, [(key labels, tooltip)]), groups in the order of their first key."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for key in keys:
        if (key.id or "").rpartition(".")[2] not in MOVEMENT_KEYS:
            written = ", ".join(map(key_label, key.key.split(",")))
            groups.setdefault(_group(key), []).append((written, key.tooltip))
    return list(groups.items())


def _group(key: Binding) -> str:
    return key.group.description if key.group else ""


class PaletteScreen(PickScreen[str]):
    """Finds a command by words of its name or of its description, and returns its action.

    Textual's own palette fails where keys come faster than its list is laid out or taken away.
    """

    LETTERS = frozenset[str]()
    hint = "type to search · enter run · esc back"

    def __init__(self, keys: Sequence[Binding]) -> None:
        labels = (key_label(key.key.split(",")[0]) for key in keys)
        items = (
            PickerItem(f"{key.description} ({label})", key.tooltip, key.action)
            for key, label in zip(keys, labels, strict=True)
        )
        super().__init__("Commands", list(items), "")
