"""The settings panel: the form with its cursor, the estimated memory and time below it, and the help of a field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Blur, Click, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import GIB, MIB, format_share
from tuner_tui.ui.keys import EDIT_KEYS, SETTINGS_KEYS
from tuner_tui.ui.panels.layout import panel_title
from tuner_tui.ui.terminal.base_widgets import Canvas, LineInput
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import (
    BAD,
    GOOD,
    WARN,
    Line,
    Row,
    Style,
    TextSpan,
    line,
    line_width,
    shorten,
    text_width,
)
from tuner_tui.view.charts import stacked_bar
from tuner_tui.view.settings_form import (
    FieldHelpText,
    FormRow,
    SettingsView,
    check_input,
    effective_batch,
    field_help,
    find_field,
    form_rows,
    format_input,
    group_fields,
    group_help,
    step_value,
)

if TYPE_CHECKING:
    from tuner_tui.advice.outlook import DataOutlook, MemoryOutlook
    from tuner_tui.advice.recommend.duration_estimate import DurationEstimate
    from tuner_tui.memory.estimate import MemoryEstimate
    from tuner_tui.settings.model import FieldSpec


@dataclass(eq=False, repr=False)
class SettingEdited(Message):
    """The user gave the field `name` a new value, as typed; the app parses and checks it."""

    name: str
    text: str


@dataclass(eq=False, repr=False)
class ChoiceWanted(Message):
    """Show the choices of the field `name` as a list."""

    name: str


@dataclass(eq=False, repr=False)
class ValueTyped(Message):
    """A value is being typed for the field `name`; `text` is None while it is not valid, and at the end."""

    name: str
    text: str | None


LEAST_BAR, MOST_BAR = 6, 40
LEAST_SOURCE = 12
SMALL_BYTES = 20 * GIB
LEAST_GIB_BYTES = 0.1 * GIB
"""Smaller sizes are shown in MiB."""
GPU, HOST = "peak VRAM", "peak RAM"
VERDICTS: Mapping[str, tuple[str, Style, str]] = {
    "fits": (GOOD, "good", "fits"),
    "tight": (WARN, "warn", "may not fit"),
    "too large": (BAD, "bad", "does not fit"),
    "unknown": (" ", "", "of unknown size"),
}
"""Mark, its style, and words."""


def estimate_rows(shown: MemoryOutlook | None, width: int) -> list[Row]:
    """Return the bar with its figures, a row with verdict, largest batch and source, expected time and the data."""
    if shown is None:
        return [Row(line(TextSpan(GPU, "dim")))]
    last = [_time_row(shown.duration, width), *([] if shown.data is None else [_data_row(shown.data, width)])]
    if shown.estimate is None:
        unknown = wrap_text(f"peak memory {shown.unknown}", max(10, width))
        return [*(Row(line(TextSpan(part, "dim"))) for part in unknown), *last]
    return [_bar_row(shown, shown.estimate, width), _words_row(shown, shown.estimate, width), *last]


def _time_row(expected: DurationEstimate | None, width: int) -> Row:
    label = TextSpan("time ", "dim")
    if expected is None:
        return Row(line(label, TextSpan(shorten("not known before a first run", width - 5), "dim")))
    from tuner_tui.advice.recommend.duration_estimate import summarise_duration

    text = shorten(summarise_duration(expected), width - 5)
    room = width - 5 - text_width(text) - 3
    rests_on = f" · {shorten(expected.rests_on, room)}" if room >= LEAST_SOURCE else ""
    return Row(line(label, text, TextSpan(rests_on, "dim")))


def _data_row(data: DataOutlook, width: int) -> Row:
    """Return what a batch loses first: `data 21 % padding · 3 % cut · half up to 310, longest 2,048 tokens`."""
    found = data.lengths
    padding = "packed" if found.packed else f"{format_share(data.padding_share)} padding"
    spread = f"half up to {found.percentile(0.5):,}, longest {found.longest:,}"
    parts = (padding, f"{format_share(data.cut_share)} cut", spread, f"{found.total:,} samples")
    return Row(line(TextSpan("data ", "dim"), shorten(" · ".join(parts), width - 5)))


def _bar_row(shown: MemoryOutlook, found: MemoryEstimate, width: int) -> Row:
    label = GPU if shown.on_gpu else HOST
    mark, style, _ = VERDICTS[found.verdict]
    figures = f"{mark} {figures_of(found)}"
    whose = f" {shown.against}" if shown.against else ""
    bar_width = width - text_width(label) - text_width(figures) - 2
    if bar_width - len(whose) >= LEAST_BAR + 2:
        figures, bar_width = figures + whose, bar_width - len(whose)
    wrong = style in ("warn", "bad")  # a bar that fits is quiet: the eye belongs elsewhere
    figured = TextSpan(figures, style if wrong else "")
    bar: Line = ()
    if found.capacity_bytes and bar_width >= LEAST_BAR:
        bar = line(memory_bar(found, min(bar_width, MOST_BAR), style if wrong else "gauge"), " ")
    return Row(line(TextSpan(f"{label} ", "dim"), bar, figured))


def memory_bar(found: MemoryEstimate, width: int, style: Style) -> Line:
    """Return the estimate as a bar that ends at the capacity, its uncertainty dashed."""
    capacity = found.capacity_bytes or 1
    doubt = max(0.0, found.high_bytes - found.total_bytes)
    parts: list[tuple[float, str, Style]] = [
        (found.total_bytes / capacity, "━", style), (doubt / capacity, "╍", style),
    ]  # fmt: skip
    return stacked_bar(parts, width)


def figures_of(found: MemoryEstimate) -> str:
    """Return `61 of 80 GiB ± 2`, with one decimal for small sizes, or `612 MiB of 31 GiB ± 95 MiB`."""
    capacity, doubt = found.capacity_bytes, found.uncertainty_bytes
    if found.total_bytes < GIB:
        of = f" of {_gib(capacity)} GiB" if capacity else ""
        return f"{_mib(found.total_bytes)}{of} ± {_mib(doubt)}"
    of = f" of {_gib(capacity)}" if capacity else ""
    small = found.total_bytes < SMALL_BYTES or doubt < GIB / 2
    if doubt < LEAST_GIB_BYTES:
        return f"{_gib(found.total_bytes)}{of} GiB ± {_mib(doubt)}"
    return f"{_gib(found.total_bytes)}{of} GiB ± {f.gib(doubt) if small else f.whole_gib(doubt)}"


def _gib(size_bytes: float) -> str:
    return f.gib(size_bytes) if size_bytes < SMALL_BYTES else f.whole_gib(size_bytes)


def _mib(size_bytes: float) -> str:
    return f"{size_bytes / MIB:.0f} MiB"


def _words_row(shown: MemoryOutlook, found: MemoryEstimate, width: int) -> Row:
    most = shown.largest
    _, style, verdict = VERDICTS[found.verdict]
    words = line(TextSpan(verdict, style))
    if most is not None:
        words = line(*words, f" · largest micro batch {most:,}" if most else _nothing_fits(found))
    room = width - line_width(words)
    if room >= LEAST_SOURCE:
        words = line(*words, TextSpan(f" · {source(found.rests_on, room - 3)}", "dim"))
    return Row(words)


def _nothing_fits(found: MemoryEstimate) -> str:
    """Say that no micro batch fits only where not even the lower end of the uncertainty does."""
    lowest = found.peak_bytes(1) * found.low_bytes / found.total_bytes if found.total_bytes else 0.0
    return " at any micro batch" if found.capacity_bytes and lowest > found.capacity_bytes else " · try micro batch 1"


def source(rests_on: str, width: int) -> str:
    """Return the source of an estimate in `width` cells: `traced, corrected by run r007: ×1.02`, or its last part."""
    later = rests_on.rpartition(", ")[2]
    return next((words for words in (rests_on, later, later.partition(":")[0]) if text_width(words) <= width), later)


LABEL_COLUMNS = 13
LEAST_VALUE_COLUMNS, MOST_VALUE_COLUMNS = 10, 20


def _value_columns(row: FormRow) -> int:
    """Return the width of a value: a long one takes cells of its origin."""
    return max(LEAST_VALUE_COLUMNS, min(len(row.value), MOST_VALUE_COLUMNS))


class SettingsList(ScrollView, can_focus=True, inherit_bindings=False):
    """Shows fields and the headings of groups, with a cursor."""

    DEFAULT_CSS = """
    SettingsList {
        height: 1fr;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        overflow-x: hidden;
        .settings--heading { color: $quiet; text-style: bold; }
        .settings--quiet { color: $quiet; }
        .settings--changed { color: $primary; }
        .settings--warning { color: $warning; }
        .settings--error { color: $error; text-style: bold; }
        .settings--cursor { background: $cursor; text-style: bold; }
        &:nocolor .settings--cursor { text-style: reverse; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "settings--heading", "settings--quiet", "settings--changed",
        "settings--warning", "settings--error", "settings--cursor",
    }  # fmt: skip

    rows: reactive[tuple[FormRow, ...]] = reactive((), init=False, repaint=False)
    cursor: reactive[int] = reactive(0, init=False, repaint=False)

    class Resized(Message):
        """Another number of rows has room."""

    class Chosen(Message):
        """The row under the cursor was clicked."""

    @property
    def row(self) -> FormRow | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if 0 <= self.cursor < len(self.rows) else None

    def validate_cursor(self, cursor: int) -> int:
        return max(0, min(cursor, len(self.rows) - 1))

    def watch_rows(self, old: tuple[FormRow, ...], new: tuple[FormRow, ...]) -> None:
        self.virtual_size = Size(self._columns, len(new))
        if len(old) != len(new):
            self.refresh()
            return
        for y, (before, after) in enumerate(zip(old, new, strict=True)):
            if before != after:
                self._refresh_row(y)

    def watch_cursor(self, old: int, new: int) -> None:
        self._refresh_row(old)
        self._refresh_row(new)
        self.scroll_to_region(Region(0, new, 1, 1), animate=False, force=True)

    @property
    def out_of_sight(self) -> tuple[int, int]:
        """Number of hidden rows above and below."""
        top = self.scroll_offset.y
        return top, max(0, len(self.rows) - top - self.size.height)

    def on_resize(self, event: Resize) -> None:
        self.post_message(self.Resized())
        self.virtual_size = Size(self._columns, len(self.rows))
        self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False, force=True)

    def on_focus(self) -> None:
        self._refresh_row(self.cursor)

    def on_blur(self) -> None:
        self._refresh_row(self.cursor)

    def on_click(self, event: Click) -> None:
        line = event.y + self.scroll_offset.y
        if not 0 <= line < len(self.rows):
            return
        chosen = line == self.cursor or self.rows[line].name is None
        self.cursor = line
        if chosen:
            self.post_message(self.Chosen())

    def move(self, by: int) -> None:
        """Move the cursor by `by` rows, without wrapping around."""
        self.cursor += by

    def value_region(self) -> Region:
        """Return the region of the value under the cursor, relative to this widget."""
        width = LEAST_VALUE_COLUMNS if self.row is None else _value_columns(self.row)
        return Region(LABEL_COLUMNS + 2, self.cursor - self.scroll_offset.y, width + 1, 1)

    @property
    def _columns(self) -> int:
        return self.scrollable_content_region.width

    def _refresh_row(self, line: int) -> None:
        self.refresh(Region(0, line - self.scroll_offset.y, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        line = y + self.scroll_offset.y
        width = self._columns
        if line >= len(self.rows):
            return Strip.blank(width, self.rich_style)
        row = self.rows[line]
        segments = self._heading(row) if row.name is None else self._field(row)
        if line == self.cursor:
            segments = list(Segment.apply_style(segments, None, self._style("cursor")))
        return Strip(segments).adjust_cell_length(width, self.rich_style)

    def _heading(self, row: FormRow) -> list[Segment]:
        """Return the heading of a group, padded over the whole width for the cursor."""
        toned = self._style(row.tone) if row.tone else self._style("quiet")
        room = max(0, self._columns - len(row.label) - 2)
        return [
            Segment(f"{row.label}  "[: self._columns], self._style("heading")),
            Segment(shorten(row.origin, room).ljust(room), toned),
        ]

    def _field(self, row: FormRow) -> list[Segment]:
        plain, quiet = self.rich_style, self._style("quiet")
        toned = self._style(row.tone) if row.tone else plain
        width = _value_columns(row)
        room = self._columns - LABEL_COLUMNS - width - 3
        return [
            Segment("•" if row.changed else " ", self._style("changed")),
            Segment(f"{row.label:<{LABEL_COLUMNS}.{LABEL_COLUMNS}} ", plain),
            Segment(f"{shorten(row.value, width):>{width}} ", toned),
            Segment(
                shorten(row.origin, room).ljust(room) if room > 3 else "",
                toned if row.tone in ("warning", "error") else quiet,
            ),
        ]

    def _style(self, name: str) -> RichStyle:
        return self.get_component_rich_style(f"settings--{name}", partial=name == "cursor")


class EstimateBar(Canvas):
    """Shows the estimates of memory and time in `outlook`, in up to four rows; None while they are unknown."""

    REDRAW_ON = ("outlook",)

    outlook: reactive[MemoryOutlook | None] = reactive(None, repaint=False)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return estimate_rows(self.outlook, width)[:height]


TONES: Mapping[str, Style] = {"warning": "warn", "error": "bad"}


class FieldHelp(Canvas):
    """The facts of a field on one dim line, its help or problem below."""

    REDRAW_ON = ("shown",)

    shown: reactive[FieldHelpText] = reactive(FieldHelpText("", ""), repaint=False)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        style = TONES.get(self.shown.tone, "")
        sentence = wrap_text(self.shown.sentence, max(8, width))
        return [Row(line(TextSpan(self.shown.facts, "dim"))), *(Row(line(TextSpan(text, style))) for text in sentence)]


class ValueInput(LineInput):
    """A one-line input over the value that is edited.

    `accept` gets the text and by how many fields the cursor then moves, `cancel` is called where editing is given up.
    """

    DEFAULT_CSS = """
    ValueInput, ValueInput:focus {
        layer: over; position: absolute; height: 1; border: none; padding: 0; display: none;
        background: $panel; color: $foreground;
        &.-shown { display: block; }
        &.-wrong { color: $error; text-style: bold; }
        &:nocolor { text-style: underline; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = list(EDIT_KEYS)

    def __init__(self, accept: Callable[[str, int], None], cancel: Callable[[], None], *, id: str) -> None:
        super().__init__(id=id)
        self._accept = accept
        self._cancel = cancel

    async def action_submit(self) -> None:
        self._accept(self.value, 0)

    def action_accept(self, then: int) -> None:
        """Accept the text and move the cursor by `then` fields."""
        self._accept(self.value, then)

    def action_cancel(self) -> None:
        self._cancel()

    def on_blur(self, event: Blur) -> None:
        """Cancel when the focus has moved elsewhere."""
        if self.has_class("-shown"):
            self.call_later(self._cancel)


ROOM_FOR_ESTIMATE, ROOM_FOR_HELP, ROOM_FOR_TIME, ROOM_FOR_MORE_HELP = 7, 9, 12, 18
BORDER_LABEL = 6
"""Cells of the border at both ends of a label in it."""


class SettingsPanel(Vertical):
    """Shows the settings in `view` and posts edits as `SettingEdited`.

    `next_run`: the settings are not those of the run that is followed, but of the one after it; then groups are folded
    to what was changed.
    """

    DEFAULT_CSS = "SettingsPanel { layers: base over; }"
    BINDINGS: ClassVar[list[BindingType]] = list(SETTINGS_KEYS)

    view: reactive[SettingsView | None] = reactive(None, init=False, repaint=False)
    outlook: reactive[MemoryOutlook | None] = reactive(None, init=False, repaint=False)
    next_run: reactive[bool] = reactive(False, init=False, repaint=False)

    class RowsChanged(Message):
        """The panel needs another height."""

    def compose(self) -> ComposeResult:
        yield SettingsList(id="settings-list")
        yield EstimateBar(id="estimate")
        yield FieldHelp(id="field-help")
        yield ValueInput(self._accept, self._close, id="typed")

    def on_mount(self) -> None:
        self._opened: frozenset[str] | None = None
        self._doing: Literal["editing", "finding"] | None = None
        self.watch(self.list, "cursor", self._show_help, init=False)
        self.watch(self.list, "scroll_y", self._entitle, init=False)

    @property
    def list(self) -> SettingsList:
        """The lines of the form."""
        return self.query_one(SettingsList)

    @property
    def _typed(self) -> ValueInput:
        return self.query_one(ValueInput)

    @property
    def spec(self) -> FieldSpec | None:
        """The field under the cursor."""
        row = self.list.row
        if self.view is None or row is None:
            return None
        return next((spec for spec in self.view.specs if spec.name == row.name), None)

    def watch_view(self, view: SettingsView | None) -> None:
        if view is None:
            return
        self._show_rows()
        self._entitle()
        self._show_batch()
        self._show_help()

    def watch_next_run(self) -> None:
        self._opened = None
        self._show_rows()
        self._entitle()

    def _show_batch(self) -> None:
        if self.view is not None:
            self.border_subtitle = effective_batch(self.view, max(0, self.outer_size.width - BORDER_LABEL))

    def _show_rows(self) -> None:
        """Show the groups that fit without scrolling, if most do; otherwise only those that were opened."""
        if self.view is None:
            return
        name, group = (None, "") if self.list.row is None else (self.list.row.name, self.list.row.group)
        opened = self._opened
        if opened is None:
            opened = frozenset() if self.next_run else self._fitting_groups(self.view)
        rows = form_rows(self.view, opened, self.next_run)
        number, self.list.rows = len(self.list.rows), rows
        if len(rows) != number:
            self.post_message(self.RowsChanged())
            self._entitle()
        found = (at for at, row in enumerate(rows) if (row.name, row.group) == (name, group))
        self.list.cursor = next(found, self.list.cursor)

    def _fitting_groups(self, view: SettingsView) -> frozenset[str]:
        """Return the first groups that fit without scrolling; none if that is not most of them."""
        groups = tuple(group_fields(view.specs))
        for count in range(len(groups), len(groups) // 2, -1):
            if len(form_rows(view, groups[:count])) <= self.list.size.height:
                return frozenset(groups[:count])
        return frozenset()

    def _open_group(self, group: str, only_open: bool = False) -> None:
        """Open a group of fields, or close it."""
        opened = frozenset(row.group for row in self.list.rows if row.label.startswith("▾"))
        self._opened = opened | {group} if only_open else opened ^ {group}
        self._show_rows()

    @on(SettingsList.Resized)
    def _fit_rows(self) -> None:
        self._show_rows()
        self._entitle()

    def watch_outlook(self, outlook: MemoryOutlook | None) -> None:
        self.query_one(EstimateBar).outlook = outlook
        self._place_estimate(self.outer_size.height)

    def _entitle(self) -> None:
        """Show the preset, whether it was changed, and the number of hidden lines."""
        if self.view is None:
            return
        above, below = self.list.out_of_sight
        hidden = " ".join(part for part in (f"▴ {above}" if above else "", f"▾ {below}" if below else "") if part)
        name = f"{self.view.preset or 'unsaved'}{'*' if self.view.dirty else ''}"
        title = (
            f"{panel_title('settings', 'Next run' if self.next_run else '')} · {name}{' · ' if hidden else ''}{hidden}"
        )
        if str(self.border_title) != title:
            self.border_title = Content(title)

    def _place_estimate(self, height: int) -> None:
        bar = self.query_one(EstimateBar)
        bar.display = height >= ROOM_FOR_ESTIMATE
        most = 4 if self.outlook is not None and self.outlook.data is not None else 3
        bar.styles.height = most if height >= ROOM_FOR_MORE_HELP else 2 if height >= ROOM_FOR_TIME else 1

    def on_resize(self, event: Resize) -> None:
        self._place_estimate(event.size.height)
        text = self.query_one(FieldHelp)
        text.display = event.size.height >= ROOM_FOR_HELP
        text.styles.height = 4 if event.size.height >= ROOM_FOR_MORE_HELP and event.size.width < 60 else 3
        self._show_batch()
        if self._doing == "editing":
            self._place_over_value()

    def _show_help(self) -> None:
        spec, row = self.spec, self.list.row
        if self.view is not None and spec is not None:
            self.query_one(FieldHelp).shown = field_help(self.view, spec)
        elif self.view is not None and row is not None:
            self.query_one(FieldHelp).shown = group_help(self.view, row.group)

    def action_move(self, by: int) -> None:
        """Move the cursor by `by` fields."""
        self.list.move(by)

    def action_step(self, direction: int) -> None:
        spec, row = self.spec, self.list.row
        if spec is None and row is not None and row.label.startswith("▸" if direction > 0 else "▾"):
            self._open_group(row.group)
        if self.view is None or spec is None:
            return
        value = getattr(self.view.resolved.settings, spec.name)
        new = step_value(spec, value, up=direction > 0)
        if new != value:
            self.post_message(SettingEdited(spec.name, format_input(spec, new)))

    def action_clear(self) -> None:
        """Clear the field under the cursor if it is optional."""
        spec = self.spec
        if spec is not None and spec.optional:
            self.post_message(SettingEdited(spec.name, ""))

    @on(SettingsList.Chosen)
    def action_edit(self) -> None:
        """Edit the value under the cursor in place, toggle a switch, or open and close a group."""
        spec, row = self.spec, self.list.row
        if row is not None and row.name is None:
            self._open_group(row.group)
        if self.view is None or spec is None:
            return
        if spec.kind == "bool":
            self.action_step(1)
        elif spec.kind == "choice":
            self.post_message(ChoiceWanted(spec.name))
        else:
            self._begin_edit(format_input(spec, getattr(self.view.resolved.settings, spec.name)))

    def action_find(self) -> None:
        self._doing = "finding"
        typed = self._typed
        typed.placeholder = "find a setting"
        typed.offset = (2, max(0, self.size.height - 1))
        typed.styles.width = max(4, self.size.width - 4)
        self._open("")

    def _begin_edit(self, text: str) -> None:
        self._doing = "editing"
        self._typed.placeholder = ""
        self._place_over_value()
        self._open(text)

    def _place_over_value(self) -> None:
        place = self.list.value_region()
        self._typed.offset = place.offset
        self._typed.styles.width = max(4, place.width)

    def _open(self, text: str) -> None:
        typed = self._typed
        typed.remove_class("-wrong")
        typed.value = text
        typed.select_all()
        typed.add_class("-shown")
        typed.focus(scroll_visible=False)

    def _close(self) -> None:
        if self._doing == "editing" and self.spec is not None:
            self.post_message(ValueTyped(self.spec.name, None))
        self._doing = None
        typed = self._typed
        typed.remove_class("-shown", "-wrong")
        if typed.has_focus:
            self.list.focus(scroll_visible=False)
        self._show_help()

    @on(ValueInput.Changed)
    def _typing(self, event: ValueInput.Changed) -> None:
        event.stop()
        if self._doing == "finding":
            self._typed.set_class(bool(event.value) and not self._find(event.value), "-wrong")
        elif self._doing == "editing":
            self._check(event.value)

    def _find(self, text: str) -> bool:
        """Move the cursor to the next field that matches `text`, in a folded group too; return False if none does."""
        if self.view is None:
            return False
        row, everything = self.list.row, form_rows(self.view)
        here = next(
            (at for at, one in enumerate(everything) if row and (one.name, one.group) == (row.name, row.group)), 0
        )
        found = find_field(everything, text, here - 1)
        if found is None:
            return False
        name = everything[found].name
        if all(one.name != name for one in self.list.rows):
            self._open_group(everything[found].group, only_open=True)
        self.list.cursor = next(at for at, one in enumerate(self.list.rows) if one.name == name)
        return True

    def _check(self, text: str) -> bool:
        """Show the problem with `text` while it is typed; return True if it is valid."""
        spec = self.spec
        if self.view is None or spec is None:
            return False
        wrong = check_input(self.view, spec, text)
        self._typed.set_class(wrong is not None and wrong.tone == "error", "-wrong")
        self.query_one(FieldHelp).shown = wrong or field_help(self.view, spec)
        right = wrong is None or wrong.tone != "error"
        self.post_message(ValueTyped(spec.name, text if right else None))
        return right

    def _accept(self, text: str, then: int) -> None:
        spec = self.spec
        if self._doing == "editing" and spec is not None:
            if not self._check(text):
                return
            self.post_message(SettingEdited(spec.name, text))
        elif self._doing == "finding" and text and not self._find(text):
            return
        self._close()
        self.list.move(then)
