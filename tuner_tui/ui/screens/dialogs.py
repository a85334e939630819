"""Dialogs that ask one question or show one thing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from rich.console import Group
from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.events import Click, Key
from textual.message import Message
from textual.reactive import reactive
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static

from tuner_tui.core.units import format_share, format_size
from tuner_tui.ui.keys import KEYS
from tuner_tui.ui.terminal.base_widgets import LeavableScreen, LineInput, Result, RowsPanel, themed_style
from tuner_tui.view.cells import Line
from tuner_tui.view.charts import gauge
from tuner_tui.view.finding_rows import FindingChoice, further_evidence, memory_in_words

if TYPE_CHECKING:
    from tuner_tui.advice.estimate import PeakMemory
    from tuner_tui.advice.finding import Remedy
    from tuner_tui.advice.recommend.memory_breakdown import BreakdownRow
    from tuner_tui.ui.state import SettingChange


def label_table(lines: Iterable[tuple[str, str | None]]) -> Table:
    """Return a row for each label that has a text; a command, and settings that do not reach it, are emphasised."""
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    not_applied = False
    for label, content in lines:
        not_applied = label == "Not applied" or (not_applied and not label)
        style = "bold" if label in ("Problem", "Command", "Not applied") else "dim" if not_applied else ""
        if content:
            table.add_row(Text(label, "bold" if label == "Not applied" else "dim"), Text(content, style))
    return table


LEAST_DIALOG, DIALOG_FRAME = 40, 6
"""Columns of a dialog at least, and those of its border around the hint."""


class Dialog(ModalScreen[Result], LeavableScreen[Result]):
    """A modal box with a heading and a line of hints. Escape returns None."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["dialog"], *KEYS["app"]]
    heading = ""
    hint = "esc back"

    def body(self) -> Iterable[Widget]:
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        box = Vertical(*self.body(), id="dialog")
        box.border_title = Content(self.heading)
        box.border_subtitle = Content(self.hint)
        box.styles.min_width = max(LEAST_DIALOG, cell_len(self.hint) + DIALOG_FRAME)
        yield box


class ConfirmScreen(Dialog[bool]):
    """Asks `question` and returns True for a yes."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["confirm"]]
    ready = True
    """Whether the dialog can be confirmed."""
    question: reactive[str] = reactive("", init=False, repaint=False)

    def __init__(self, heading: str, question: str = "", verb: str = "yes") -> None:
        super().__init__()
        self.heading, self._asked = heading, Static(question, markup=False)
        self.hint = f"enter {verb} · esc cancel"

    def body(self) -> Iterable[Widget]:
        yield VerticalScroll(self._asked)

    def watch_question(self, question: str) -> None:
        self._asked.update(question)

    def action_confirm(self) -> None:
        if self.ready:
            self.dismiss(True)


class NameScreen(Dialog[str]):
    """Asks for a name, which `about` describes, and returns it.

    `problem` returns what is wrong with a name; it is shown, and the dialog stays.
    """

    hint = "enter save · esc cancel"

    def __init__(self, heading: str, name: str, problem: Callable[[str], str | None], about: str) -> None:
        super().__init__()
        self.heading = heading
        self._about = about
        self._first = name
        self._problem = problem

    def body(self) -> Iterable[Widget]:
        yield Static(self._about, markup=False, classes="quiet")
        yield LineInput(self._first, select=True)
        yield Static("", markup=False, id="message", classes="-wrong")

    @on(Input.Submitted)
    def _named(self, event: Input.Submitted) -> None:
        name = event.value.strip()
        problem = self._problem(name) if name else "Type a name."
        if problem is None:
            self.dismiss(name)
        else:
            self.query_one("#message", Static).update(problem)


class LaunchScreen(ConfirmScreen):
    """Asks whether to start what `tell` has described.

    A yes that was typed before is kept until then, and has to be repeated only where something should be seen first.
    """

    LOOK_FIRST = frozenset({"Problem", "Not applied", "Meanwhile", "Lost"})

    def __init__(self, heading: str, choose_gpus: Callable[[int], object]) -> None:
        """`choose_gpus` is called with the number of GPUs that is typed, and calls `tell` again."""
        super().__init__(heading, verb="queue" if heading == "Queue" else "start")
        self._choose_gpus, self._most_gpus, self._typed = choose_gpus, 0, 0
        self._sentence, self._about = Static("Reading settings and hardware …", markup=False), Static()
        self._confirmed, self._look_first = False, False
        self._told_s = math.inf

    def body(self) -> Iterable[Widget]:
        yield VerticalScroll(self._sentence, self._about)

    def tell(self, sentence: str, lines: Sequence[tuple[str, str]], most_gpus: int, heading: str) -> None:
        """Describe the start, which can be on one to `most_gpus` GPUs."""
        typed, self._typed = self._typed, 0
        if 0 < typed <= most_gpus:
            self._choose_gpus(typed)
            return
        self._told_s = time.monotonic()
        self.query_one("#dialog").border_title = Content(heading)
        if most_gpus > 1:
            self._most_gpus = min(most_gpus, 9)
            self.query_one("#dialog").border_subtitle = Content(f"1–{self._most_gpus} number of GPUs · {self.hint}")
        self._sentence.update(Text(sentence, "bold"))
        self._about.update(Group("", label_table(lines)) if lines else "")
        self._look_first = any(label in self.LOOK_FIRST for label, _ in lines)
        if self._confirmed:
            self.action_confirm()

    def on_key(self, event: Key) -> None:
        if event.key.isdecimal() and self._told_s == math.inf:
            event.stop()
            self._typed = int(event.key)
        elif event.key.isdecimal() and 1 <= int(event.key) <= self._most_gpus:
            event.stop()
            self._choose_gpus(int(event.key))

    def action_confirm(self) -> None:
        seen = self.app.typed_s >= self._told_s  # type: ignore[attr-defined]
        if seen or (self._told_s < math.inf and not self._look_first):
            super().action_confirm()
        elif self._told_s == math.inf:
            self._confirmed = True
            self._sentence.update("Reading settings and hardware … The run starts when they are read; esc cancels.")


class DiffScreen(ConfirmScreen):
    """Shows what a remedy changes, its expected effect and when it takes effect; returns True to apply it."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["diff"]]

    def __init__(self, remedy: Remedy, changes: Sequence[SettingChange], when: str) -> None:
        super().__init__(remedy.title, verb="apply")
        self.ready = bool(changes)
        self.hint = self.hint if changes else "esc back"
        self._remedy = remedy
        self._changes = changes
        self._when = when

    def body(self) -> Iterable[Widget]:
        if not self._changes:
            yield Static("The settings already have these values.", markup=False)
            return
        remedy = self._remedy
        expected = ("effect", remedy.expectation), ("basis", remedy.rests_on), ("applies", self._when)
        yield Static(label_table(expected))
        yield Static(self._lines(), markup=False)

    def _lines(self) -> Text:
        label = max(len(change.label) for change in self._changes)
        old = max(len(change.old) for change in self._changes)
        text, new_style = Text(), themed_style("curve", self.app.theme_variables) + Style(bold=True)
        for change in self._changes:
            text.append(f"\n{change.label:<{label}}   ").append(f"{change.old:>{old}}  →  ", "dim")
            text.append(change.new, new_style)
        return text


class WhyScreen(Dialog[None]):
    """Shows a finding with its evidence, and one of its remedies."""

    def __init__(self, choice: FindingChoice) -> None:
        super().__init__()
        self.heading = "Why"
        self._choice = choice

    def body(self) -> Iterable[Widget]:
        finding, remedy = self._choice.finding, self._choice.remedy
        parts: list[tuple[str, str | None]] = [
            ("where", (finding.where or "").replace("-", " ")),
            ("confidence", finding.confidence),
            *(("" if n else "evidence", memory_in_words(fact)) for n, fact in enumerate(further_evidence(finding))),
        ]
        if remedy is not None:
            parts += [
                ("remedy", remedy.title), ("why", remedy.why), ("effect", remedy.expectation),
                ("basis", remedy.rests_on), ("source", remedy.source),
            ]  # fmt: skip
        yield VerticalScroll(Static(Text(f"{finding.headline}\n", "bold")), Static(label_table(parts)))


class InspectionScreen(Dialog[None]):
    """Shows rows: the machine, or where the processes of a run are, or what makes their steps slow."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["inspection"]]

    def __init__(self, heading: str, draw: Callable[[int], Sequence[Line]]) -> None:
        """`draw` returns the rows for a width."""
        super().__init__()
        self.heading = heading
        self._draw = draw

    def body(self) -> Iterable[Widget]:
        yield VerticalScroll(RowsPanel(self._draw))


BAR_WIDTH = 10
ROOM_FOR_BARS = 100


class MemoryScreen(Dialog[None]):
    """Shows the `parts` of the peak by kind, or by module and kind, each with what reduces it, once they are known."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["memory"]]
    heading = "Memory"

    parts: reactive[PeakMemory | None] = reactive(None, init=False, repaint=False)
    by_module: reactive[bool] = reactive(False, init=False, repaint=False)

    def body(self) -> Iterable[Widget]:
        tracing = "Tracing the model on the CPU … The first time takes seconds, or a minute for a large model."
        yield VerticalScroll(Static(tracing, id="parts"))
        yield Static("", markup=False, classes="quiet", id="total")

    def on_mount(self) -> None:
        for name in ("parts", "by_module"):
            self.watch(self, name, self._show)

    def action_switch(self) -> None:
        self.by_module = not self.by_module and self.parts is not None and bool(self.parts.by_module)

    def _show(self) -> None:
        parts = self.parts
        if parts is None:
            return
        box = self.query_one("#dialog")
        box.border_title = Content(f"Memory · {parts.title}")
        other = f"m by {'kind' if self.by_module else 'module'} · " if parts.by_module else ""
        box.border_subtitle = f"{other}esc back"
        rows = parts.by_module if self.by_module else parts.by_kind
        self.query_one("#parts", Static).update(parts_table(rows, bars=self.app.size.width >= ROOM_FOR_BARS))
        total = f"All tensors at the peak, in {parts.phase}: {format_size(parts.total_bytes)}."
        self.query_one("#total", Static).update(f"{total} {parts.context} and allocator overhead are extra.")


def parts_table(rows: Sequence[BreakdownRow], bars: bool) -> Table:
    """Return a row for each part: name, dtype, size, share, a bar of it, what reduces it and by how much."""
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(ratio=3, overflow="fold")
    table.add_column(no_wrap=True)
    for _ in ("size", "share"):
        table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True)
    table.add_column(ratio=3, overflow="fold")
    table.add_row(*(Text(head, "dim") for head in ("part", "dtype", "size", "share", "", "saved by, at most")))
    for row in rows:
        bar = "".join(span.text for span in gauge(row.share, BAR_WIDTH, "gauge")) if bars else ""
        reduced = "" if row.remedy is None else row.remedy.sentence
        size, share = format_size(row.size_bytes), format_share(row.share)
        table.add_row(Text(row.name), Text(row.dtype, "dim"), size, Text(share, "bold"), bar, Text(reduced, "dim"))
    return table


class Choice(Widget, can_focus=True):
    """Shows the chosen word between two arrows, and posts `Changed` when it changes."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["choice"]]
    value: reactive[str] = reactive("")

    @dataclass
    class Changed(Message):
        """Another word was chosen."""

        choice: Choice

        @property
        def control(self) -> Choice:
            return self.choice

    def __init__(
        self, choices: Sequence[str], value: str, words: Mapping[str, str] = MappingProxyType({}), *, id: str
    ) -> None:
        """`words` are shown in place of choices."""
        super().__init__(id=id)
        self._choices, self._words = tuple(choices), words
        self.set_reactive(Choice.value, value or self._choices[0])

    def render(self) -> Text:
        return Text.assemble(("◂ ", "dim"), self._words.get(self.value, self.value), (" ▸", "dim"))

    def action_turn(self, by: int) -> None:
        at = self._choices.index(self.value) if self.value in self._choices else 0
        self.value = self._choices[(at + by) % len(self._choices)]
        self.post_message(self.Changed(self))

    def on_click(self, event: Click) -> None:
        self.action_turn(1)
