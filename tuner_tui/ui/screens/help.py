"""The help screen: every key by its group, rendered from the bindings, and the words of the screen."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from tuner_tui.ui.keys import spelled
from tuner_tui.ui.screens.dialog import Dialog

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from textual.widget import Widget

MOVES = frozenset({"up", "down", "page-up", "page-down", "first", "last", "start", "left", "right"})
"""Keys that move the cursor as they do everywhere; one line says so."""
WORDS = (
    ("moving", "arrows or h j k l, page up and down, home and end; the mouse too"),
    ("origin", "where a value came from: default, recommended, preset, environment, flag, edited, remedy, tuned"),
    ("•", "differs from the preset; * after the preset's name says that something does"),
    ("effective batch", "micro batch × accumulation × processes: the samples behind one optimizer step"),
    ("finding, remedy", "something wrong or improvable with its evidence, and the change that answers it"),
    ("in effect", "what the training process really does, seen inside it, beside what was asked for"),
    ("quit", "leaves the screen only: a training goes on, and the next screen shows all of it"),
)


class HelpScreen(Dialog[None]):
    """All of `keys`, then the words with their meanings."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1,q", "leave", "Back", id="help.leave", show=False),
    ]
    heading = "Help"
    hint = "↑ ↓ scroll · esc back"

    def __init__(self, keys: Sequence[Binding], words: Sequence[tuple[str, str]] = WORDS) -> None:
        super().__init__()
        self._keys = keys
        self._words = words

    def body(self) -> Iterable[Widget]:
        yield VerticalScroll(Static(help_text(self._keys) + words_text(self._words), markup=False))


def help_text(keys: Sequence[Binding]) -> Text:
    """Keys by group as aligned lines."""
    rows = [
        (_group(key), ", ".join(map(spelled, key.key.split(","))), key.tooltip)
        for key in keys
        if (key.id or "").rpartition(".")[2] not in MOVES
    ]
    order = list(dict.fromkeys(group for group, _, _ in rows))
    rows.sort(key=lambda row: order.index(row[0]))
    width = max(len(written) for _, written, _ in rows)
    text = Text()
    for group, members in groupby(rows, key=lambda row: row[0]):
        text.append(f"{group}\n", "bold")
        for _, written, tip in members:
            text.append(f"  {written:<{width}}  {tip}\n")
    return text


def words_text(words: Sequence[tuple[str, str]] = WORDS) -> Text:
    """The words of the screen and what they mean."""
    width = max(len(word) for word, _ in words)
    text = Text().append("Words\n", "bold")
    for word, meaning in words:
        text.append(f"  {word:<{width}}  {meaning}\n")
    text.rstrip()
    return text


def _group(key: Binding) -> str:
    return key.group.description if key.group else ""
