"""The help screen, rendered from the bindings with a glossary, and the command palette, which runs one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from tuner_tui.ui.keys import key_label
from tuner_tui.ui.screens.dialogs import Dialog, label_table
from tuner_tui.ui.screens.pickers import PagedList

if TYPE_CHECKING:
    from textual.widget import Widget

MOVEMENT_KEYS = frozenset({"up", "down", "page-up", "page-down", "first", "last", "start", "left", "right"})
"""Bindings left out because one line of the glossary covers all cursor keys."""
GLOSSARY = (
    ("moving", "arrows or h j k l, page up and down, home and end; the mouse too"),
    ("origin", "where a value came from: default, recommended, preset, environment, flag, edited, remedy, tuned"),
    ("•", "differs from the preset; * after the preset's name means that one does"),
    ("effective batch", "micro batch × accumulation × processes: samples per optimizer step"),
    ("finding, remedy", "a problem with its evidence, and the change that fixes it"),
    ("in effect", "the settings the training process really uses, compared with yours"),
    ("quit", "closes only the screen; trainings continue and show up again"),
)


class HelpScreen(Dialog[None]):
    """Lists `keys` by group, then the `glossary`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1,q", "leave", "Back", id="help.leave", show=False),
    ]
    heading = "Help"
    hint = "↑ ↓ scroll · esc back"

    def __init__(self, keys: Sequence[Binding], glossary: Sequence[tuple[str, str]] = GLOSSARY) -> None:
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


class PaletteScreen(Dialog[str]):
    """Finds a command by words of its name or of its description, and returns its action.

    Textual's own palette fails where keys come faster than its list is laid out or taken away.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "cursor_up", "Up", id="palette.up", show=False),
        Binding("down", "cursor_down", "Down", id="palette.down", show=False),
        Binding("pageup", "page_up", "Page up", id="palette.page-up", show=False),
        Binding("pagedown", "page_down", "Page down", id="palette.page-down", show=False),
    ]
    heading = "Commands"
    hint = "type to search · enter run · esc back"

    def __init__(self, keys: Sequence[Binding]) -> None:
        super().__init__()
        self._keys = keys
        self._found = list(keys)

    def body(self) -> Iterable[Widget]:
        words = Input(placeholder="Search", compact=True, select_on_focus=False)
        words.cursor_blink = False
        yield words
        options = PagedList(*map(_option, self._keys), compact=True)
        options.can_focus = False
        yield options

    def on_mount(self) -> None:
        self._list().highlighted = 0

    def action_cursor_up(self) -> None:
        """Go to the command above; the focus stays on the words."""
        self._list().action_cursor_up()

    def action_cursor_down(self) -> None:
        self._list().action_cursor_down()

    def action_page_up(self) -> None:
        self._list().action_page_up()

    def action_page_down(self) -> None:
        self._list().action_page_down()

    @on(Input.Changed)
    def _search(self, event: Input.Changed) -> None:
        self._found = find_commands(self._keys, event.value)
        self._list().set_options(map(_option, self._found))
        self._list().highlighted = 0 if self._found else None

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _chosen(self) -> None:
        place = self._list().highlighted
        if place is not None and place < len(self._found):
            self.dismiss(self._found[place].action)

    def _list(self) -> PagedList:
        return self.query_one(PagedList)


def find_commands(keys: Sequence[Binding], words: str) -> list[Binding]:
    """Return the commands that contain every word, those that have them all in their name first."""
    wanted = words.casefold().split()
    found = [key for key in keys if all(word in f"{key.description} {key.tooltip}".casefold() for word in wanted)]
    return sorted(found, key=lambda key: not all(word in key.description.casefold() for word in wanted))


def _option(key: Binding) -> Option:
    label = key_label(key.key.split(",")[0])
    return Option(Text.assemble(f"{key.description} ({label})", (f"\n  {key.tooltip}", "dim")))
