"""Dialogs that pick one item of a list: a preset, a tuning, a run, or in the command palette an action."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Key
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from tuner_tui.core.text import format_table, wrap_text
from tuner_tui.core.units import format_short_duration
from tuner_tui.settings.model import closest_match
from tuner_tui.ui.keys import KEYS, key_label
from tuner_tui.ui.screens.dialogs import Dialog
from tuner_tui.ui.screens.help import NOT_NOW, moves_cursor
from tuner_tui.view.cells import shorten_command, text_width
from tuner_tui.view.number_format import significant

if TYPE_CHECKING:
    from tuner_tui.runs.queue.listing import QueueLine
    from tuner_tui.runs.read.reader import RunRow


T = TypeVar("T")
MIN_COMMAND_CELLS = 12
LEAST_LIST, MOST_DETAIL = 36, 0.3
"""Columns of a list at least, and the share of the screen's height that a detail takes at most."""
DIALOG_SHARE, DIALOG_FRAME = 0.96, 8
"""Width of a dialog as a share of the screen; columns of its border, its padding and the gap behind a label."""


class PickerItem(Struct, Generic[T], frozen=True):
    """A line of the list, and the value that picking it returns. Only `open` items can be picked.

    `detail` is shown below the list while the cursor is on the item; `group` is the heading above its first item.
    """

    label: str
    about: str
    value: T
    open: bool = True
    detail: str = ""
    group: str = ""


class PagedList(OptionList):
    """An option list that ignores page keys before its first layout; Textual's fails with a `KeyError`."""

    def action_page_up(self) -> None:
        if self.scrollable_content_region:
            super().action_page_up()  # type: ignore[no-untyped-call]

    def action_page_down(self) -> None:
        if self.scrollable_content_region:
            super().action_page_down()  # type: ignore[no-untyped-call]


class DetailText(Static):
    """The detail of an item, as high as the longest of `texts` needs: the list above stays where it is."""

    def __init__(self, texts: Callable[[], Sequence[str]]) -> None:
        super().__init__("", markup=False, id="detail", classes="quiet")
        self._texts = texts

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return min(max(detail_rows(text, width) for text in self._texts()), int(viewport.height * MOST_DETAIL))


def detail_rows(text: str, width: int) -> int:
    """Return the rows that a detail takes in `width` cells."""
    return sum(len(wrap_text(line, max(1, width))) for line in text.split("\n"))


class PickScreen(Dialog[T]):
    """Shows `items` and returns the value of the picked one; shows `empty` if there are none.

    What is typed filters them; one of `LETTERS`, which are bound, only once something else, or `/`, was typed.
    """

    LETTERS: ClassVar[frozenset[str]] = frozenset()
    hint = "type to filter · enter pick · esc back"

    def __init__(
        self,
        heading: str,
        items: Sequence[PickerItem[T]],
        empty: str,
        selected: int | None = None,
        columns: tuple[str, str] = ("", ""),
    ) -> None:
        """`columns` names what stands in the label and in `about` of each item."""
        super().__init__()
        self.heading = heading
        self._columns = columns
        self._width = max((text_width(text) for text in (columns[0], *(item.label for item in items))), default=0)
        self.hint = self.hint if items else "esc back"
        self._items = items
        self._shown = with_headings(items)
        self._empty = empty
        self._selected = selected
        self._filter: str | None = None

    def body(self) -> Iterable[Widget]:
        if not self._items:
            yield Static(self._empty, markup=False)
            return
        filtered = Static("", markup=False, id="filter", classes="quiet")
        filtered.display = False
        yield filtered
        if any(self._columns):
            yield Static(self._heading_row(), markup=False, id="columns", classes="quiet")
        options = PagedList(*self._options(), compact=True)
        options.styles.min_width = max(LEAST_LIST, self._width + 2 + len(self._columns[1]))
        yield options
        if any(item.detail for item in self._items):
            yield DetailText(self._details)

    def _details(self) -> list[str]:
        """The texts of which the longest has room below the list."""
        return [item.detail for item in self._items]

    def _heading_row(self) -> str:
        return f"{self._columns[0]:<{self._width}}  {self._columns[1]}"

    def _options(self) -> list[Option]:
        return [
            Option(Text(heading, "bold"), disabled=True)
            if item is None
            else Option(
                Text.assemble(
                    item.label,
                    " " * (self._width - text_width(item.label) + 2),
                    (item.about, "" if item.open else "dim"),
                ),
                disabled=not item.open,
            )
            for heading, item in self._shown
        ]

    def on_mount(self) -> None:
        for options in self.query(OptionList):
            options.highlighted = self._first_open() if self._selected is None else self._selected

    def _first_open(self) -> int | None:
        return next((i for i, (_, item) in enumerate(self._shown) if item is not None and item.open), None)

    def _picked_item(self, index: int | None) -> PickerItem[T] | None:
        """The item at a line of the list; None for a heading."""
        return self._shown[index][1] if index is not None and index < len(self._shown) else None

    def on_key(self, event: Key) -> None:
        text = self._filter or ""
        if not self._items:
            return
        if event.key == "slash" and self._filter is None:
            self._filter = ""
        elif event.key == "backspace" and self._filter is not None:
            self._filter = text[:-1]
        elif event.is_printable and event.character and (self._filter is not None or event.key not in self.LETTERS):
            self._filter = text + event.character
        else:
            return
        event.stop()
        self._show_matches()

    def _show_matches(self) -> None:
        typed = words = (self._filter or "").lower().split()
        texts = [f"{item.label} {item.about}" for item in self._items]

        def has_words(text: str) -> bool:
            return all(word in text.lower() for word in words)

        if not any(map(has_words, texts)):  # a detail is shown of one item only
            texts = [f"{text} {item.detail}" for item, text in zip(self._items, texts, strict=True)]
        if not any(map(has_words, texts)):  # of a typing mistake the nearest word counts
            vocabulary = {word for item in self._items for word in re.findall(r"\w{3,}", item.label.lower())}
            words = [closest_match(word, vocabulary) or word for word in words]
        matches = [item for item, text in zip(self._items, texts, strict=True) if has_words(text)]
        groups = list(dict.fromkeys(item.group for item in matches))
        matches.sort(key=lambda item: (groups.index(item.group), not has_words(item.label)))
        self._shown = with_headings(matches)
        filtered, options = self.query_one("#filter", Static), self.query_one(OptionList)
        filtered.display = self._filter is not None
        hint = self.hint.replace("esc back", "esc clear") if filtered.display else self.hint
        self.query_one("#dialog").border_subtitle = Content(hint)
        nearest = "" if words == typed else f"  nearest: {' '.join(words)}"
        filtered.update(
            f"filter: {self._filter or ''}▏{nearest}  {len(matches) or 'none'} of {len(self._items)} matches"
        )
        options.clear_options()
        options.add_options(self._options())
        options.highlighted = self._first_open()
        for detail in self.query("#detail").results(Static) if not matches else ():
            detail.update("")

    @on(OptionList.OptionHighlighted)
    def _show_detail(self, event: OptionList.OptionHighlighted) -> None:
        item = self._picked_item(event.option_index)
        for detail in self.query("#detail").results(Static):
            detail.update("" if item is None else item.detail)

    def action_leave(self) -> None:
        """Clear the filter, else return None."""
        if self._filter is None:
            self.dismiss(None)
        else:
            self._filter = None
            self._show_matches()

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        item = self._picked_item(event.option_index)
        if item is not None:
            self.dismiss(item.value)


def with_headings(items: Iterable[PickerItem[T]]) -> list[tuple[str, PickerItem[T] | None]]:
    """Return the items, each group after a line of its heading: (heading, None)."""
    lines: list[tuple[str, PickerItem[T] | None]] = []
    group = ""
    for item in items:
        if item.group != group:
            group = item.group
            lines.append((group[:1].upper() + group[1:], None))
        lines.append((group, item))
    return lines


PRESETS_WIDTH, PRESETS_FRAME = 94, 4
"""Cells of a line of the preset dialog, and its rows that are neither the list nor the detail."""


class PresetScreen(PickScreen[str]):
    """Lists presets, as wide as their details need; `columns` names what is said of each."""

    def __init__(self, columns: str, items: Sequence[PickerItem[str]]) -> None:
        super().__init__("Presets", items, "There are no presets.", columns=("preset", columns))

    def on_mount(self) -> None:
        super().on_mount()
        self._limit_height()

    def _details(self) -> list[str]:
        """That of the preset under the cursor: the list, which has a fixed place, gets the rest."""
        item = self._picked_item(self.query_one(OptionList).highlighted)
        return [item.detail if item is not None else ""]

    def _limit_height(self) -> None:
        details = (detail_rows(item.detail, PRESETS_WIDTH) for item in self._items)
        self.query_one("#dialog").styles.max_height = len(self._shown) + max(details, default=0) + PRESETS_FRAME

    def show(self, columns: str, items: Sequence[PickerItem[str]]) -> None:
        """List `items` in place of those so far; a cursor that was moved stays on the preset of the same name."""
        before, moved = None, False
        for options in self.query(OptionList):
            before, moved = self._picked_item(options.highlighted), options.highlighted != self._first_open()
        self._columns, self._items, self._shown = ("preset", columns), items, with_headings(items)
        self._limit_height()
        if before is None:
            return
        self._show_matches()
        self.query_one("#columns", Static).update(self._heading_row())
        values = [item and item.value for _, item in self._shown]
        options = self.query_one(OptionList)
        options.styles.min_width = max(LEAST_LIST, self._width + 2 + len(columns))
        if moved and before.value in values:
            options.highlighted = values.index(before.value)


RunOrder = Literal["open", "compare", "resume", "remove", "add"]


class RunPicked(NamedTuple):
    """The run picked, and what for: to follow it, to compare it with another one, to go on from its checkpoint, or to
    remove it from the queue; None for `add`, which queues the training shown."""

    folder: Path | None
    order: RunOrder = "open"


class RunListScreen(PickScreen[RunPicked]):
    """Lists runs; returns the one picked and what for. `empty` is shown if there are none."""

    empty = ""

    def __init__(self, runs: Sequence[PickerItem[Path]], columns: tuple[str, str] = ("", "")) -> None:
        items = [
            PickerItem(run.label, run.about, RunPicked(run.value), run.open, run.detail, run.group) for run in runs
        ]
        super().__init__(self.heading, items, self.empty, columns=columns)

    def action_pick(self, order: RunOrder) -> None:
        for options in self.query(OptionList):
            run = self._picked_item(options.highlighted)
            if run is not None:
                self.dismiss(RunPicked(run.value.folder, order))


class RunsScreen(RunListScreen):
    """Lists the runs that were started."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["runs"]]
    LETTERS = frozenset("vR")
    heading = "Runs"
    empty = "No runs yet; t starts one."

    def __init__(self, runs: Sequence[RunRow], width: int) -> None:
        """`width` is that of the screen."""
        runs = sorted(runs, key=lambda run: run.tuning is not None)
        columns, items = run_table(runs, width)
        early = [run.outcome not in (None, "completed") and bool(run.step) and not run.damage for run in runs]
        more = " · v compare" * (len(runs) > 1) + " · R resume" * any(early)
        self.hint = f"type to filter · enter open{more} · esc back"
        listed = [
            replace(item, detail=item.detail + f"\n{RESUMES}" * resumes, group="trials" * (run.tuning is not None))
            for item, resumes, run in zip(items, early, runs, strict=True)
        ]
        super().__init__(listed, columns)


class QueueScreen(RunListScreen):
    """Lists the runs that wait."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["queue"]]
    LETTERS = frozenset("ax")
    heading = "Queue"
    hint = "enter open · x remove · a add the training shown · type to filter · esc back"
    empty = "The queue is empty. a adds the training shown, which starts when its hardware is free."

    def action_add(self) -> None:
        self.dismiss(RunPicked(None, "add"))


def queue_items(lines: Sequence[QueueLine], now_s: float) -> list[PickerItem[Path]]:
    """Return waiting runs as items: state, age, command. The detail of each is why it waits."""
    times = (line.submitted_t for line in lines)
    ages = ("" if t is None else format_short_duration(max(0.0, now_s - t)) for t in times)
    rows = [(line.state, age, " ".join(line.title.split())) for line, age in zip(lines, ages, strict=True)]
    return [
        PickerItem(line.run, text, Path(line.path), detail=line.reason)
        for line, text in zip(lines, format_table(rows), strict=True)
    ]


RUN_COLUMNS = ("state", "started", "took", "steps/s", "loss")


def run_table(runs: Sequence[RunRow], columns: int = 80) -> tuple[tuple[str, str], list[PickerItem[Path]]]:
    """Return the names of the columns, and runs as items in them: those of `RUN_COLUMNS`, and the command.

    The command stands without the folder of its program, and loses its start where a screen of `columns` has
    no room for it. The detail of each is its whole command and its last sentence.
    """
    from tuner_tui.runs.events.run_state import strip_allocator_message

    figures = [RUN_COLUMNS, *map(_run_figures, runs)]
    room = int(columns * DIALOG_SHARE) - DIALOG_FRAME - 2 - max(map(len, format_table(figures)))
    commands = (_shorten_command(run, max(MIN_COMMAND_CELLS, room - len(run.run))) for run in runs)
    head, *lines = format_table([(*row, end) for row, end in zip(figures, ("command", *commands), strict=True)])
    items = [
        PickerItem(
            run.run,
            line,
            Path(run.path),
            detail="\n".join(filter(None, (run.label, strip_allocator_message(run.damage or run.sentence)))),
        )
        for run, line in zip(runs, lines, strict=True)
    ]
    return ("run", head), items


def _shorten_command(run: RunRow, width: int) -> str:
    """Return the command and, where they have room next to it, the remarks on the run as a whole."""
    program, space, options = run.title.partition(" ")
    command, remarks = f"{program.rpartition('/')[2]}{space}{options}", run.label[len(run.title) :]
    if text_width(command) > width and program.rpartition("/")[2].startswith("python"):
        command = options  # a script says more
    room = width - len(remarks)
    return shorten_command(command, room) + remarks if room >= MIN_COMMAND_CELLS else shorten_command(command, width)


RESUMES = "R resumes the run from its last checkpoint, or restarts it from step 0 if none was saved."
"""Said of a run that ended early; whether it saved one is looked up when it is to be resumed."""


def _run_figures(run: RunRow) -> tuple[str, ...]:
    return (
        (run.outcome or run.status).replace("-", " "),
        "" if run.age_s is None else f"{format_short_duration(run.age_s)} ago",
        "" if run.duration_s is None else format_short_duration(run.duration_s),
        "" if run.steps_s is None else significant(run.steps_s),
        "" if run.loss is None else significant(run.loss),
    )


class PaletteCommand(NamedTuple):
    """An action of the panel `page`, or of the main screen where that is empty."""

    page: str
    action: str


class PaletteScreen(PickScreen[PaletteCommand]):
    """Finds a command by words of its name or of its description; `keys` are those of each page.

    The actions in `idle` have nothing to act on now: they stand last, and say so if they are picked.

    Textual's own palette fails where keys come faster than its list is laid out or taken away.
    """

    hint = "type to search · enter run · esc back"

    def __init__(self, keys: Mapping[str, Sequence[Binding]], idle: Collection[str]) -> None:
        items = [
            PickerItem(
                f"{key.description} ({key_label(key.key.split(',')[0])})",
                key.tooltip,
                PaletteCommand(page, key.action),
                group=NOT_NOW if key.action in idle else "",
            )
            for page, bindings in keys.items()
            for key in bindings
            if not moves_cursor(key) and key.action != "app.command_palette"
        ]
        super().__init__("Commands", sorted(items, key=lambda item: item.group), "")
