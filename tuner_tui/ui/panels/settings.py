"""The settings panel: the form with its cursor, the estimated memory and time below it, and the help of a field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Literal

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import getters, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.events import Blur, Click, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tuner_tui.ui.keys import KEYS
from tuner_tui.ui.panels.arrangement import panel_title
from tuner_tui.ui.terminal.base_widgets import LineInput, RowsPanel, set_border_text
from tuner_tui.view.cells import shorten, shorten_phrases, wrapped_parts
from tuner_tui.view.estimate_rows import estimate_rows
from tuner_tui.view.settings_form import (
    PARTLY,
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
    help_rows,
    step_value,
)

if TYPE_CHECKING:
    from tuner_tui.advice.estimate import MemoryOutlook
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


LABEL_COLUMNS = 13
AROUND_TITLE = 6
"""Cells of the border around its title: the corners, a line and a blank at either end."""
LEAST_VALUE_COLUMNS, MOST_VALUE_COLUMNS = 10, 20


def _value_columns(row: FormRow) -> int:
    """Return the width of a value: a long one takes cells of its origin."""
    return max(LEAST_VALUE_COLUMNS, min(len(row.value), MOST_VALUE_COLUMNS))


class SettingsList(ScrollView, can_focus=True, inherit_bindings=False):
    """Shows fields and the headings of groups, with a cursor."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "settings--heading", "settings--quiet", "settings--changed",
        "settings--warning", "settings--error", "settings--cursor",
    }  # fmt: skip

    rows: reactive[tuple[FormRow, ...]] = reactive((FormRow(""),), init=False, repaint=False)
    cursor: reactive[int] = reactive(0, init=False, repaint=False)

    class Resized(Message):
        """Another number of rows has room."""

    class Chosen(Message):
        """The row under the cursor was clicked."""

    @property
    def row(self) -> FormRow | None:
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

    def on_resize(self, event: Resize) -> None:
        self.post_message(self.Resized())
        self.virtual_size = Size(self._columns, len(self.rows))
        self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False, force=True)

    def on_focus(self) -> None:
        self._refresh_row(self.cursor)

    on_blur = on_focus

    def on_click(self, event: Click) -> None:
        line = event.y + self.scroll_offset.y
        if not 0 <= line < len(self.rows):
            return
        chosen = line == self.cursor or self.rows[line].name is None
        self.cursor = line
        if chosen:
            self.post_message(self.Chosen())

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
        room = max(0, self._columns - len(row.label) - 2)
        return [
            Segment(f"{row.label}  "[: self._columns], self._style("heading")),
            Segment(shorten(row.origin, room).ljust(room), self._style(row.tone or "quiet")),
        ]

    def _field(self, row: FormRow) -> list[Segment]:
        plain, quiet = self.rich_style, self._style("quiet")
        toned = self._style(row.tone) if row.tone else plain
        width = _value_columns(row)
        room = self._columns - LABEL_COLUMNS - width - 3
        wrong = row.tone in ("warning", "error")
        # A part of a sentence helps; a part of the word "preset" does not.
        origin = shorten_phrases(row.origin, room) if wrong or " " in row.origin or len(row.origin) <= room else ""
        return [
            Segment("•" if row.changed else " ", self._style("changed")),
            Segment(f"{row.label:<{LABEL_COLUMNS}.{LABEL_COLUMNS}} ", plain),
            Segment(f"{shorten(row.value, width):>{width}} ", toned),
            Segment(origin.ljust(room) if room > 3 else "", toned if wrong else quiet),
        ]

    def _style(self, name: str) -> RichStyle:
        return self.get_component_rich_style(f"settings--{name}", partial=name == "cursor")


class ValueInput(LineInput):
    """A one-line input over the value that is edited.

    `accept` gets the text, by how many fields the cursor then moves, and whether the field there is edited, too;
    `cancel` is called where editing is given up.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["edit"]]

    def __init__(self, accept: Callable[[str, int, bool], None], cancel: Callable[[], None], *, id: str) -> None:
        super().__init__(id=id)
        self._accept = accept
        self._cancel = cancel

    async def action_submit(self) -> None:
        self._accept(self.value, 0, False)

    def action_accept(self, then: int, edits: bool = False) -> None:
        self._accept(self.value, then, edits)

    def action_cancel(self) -> None:
        self._cancel()

    def on_blur(self, event: Blur) -> None:
        if self.has_class("-shown"):
            self.call_later(self._cancel)


ROOM_FOR_ESTIMATE, ROOM_FOR_HELP, ROOM_FOR_TIME, ROOM_FOR_MORE_HELP = 7, 9, 12, 18
BORDER_LABEL = 6
"""Cells of the border at both ends of a label in it."""


class SettingsPanel(Vertical):
    """Shows the settings in `view` and posts edits as `SettingEdited`.

    `next_run`: the settings are not those of the run that is followed, but of the one after it; then folded groups
    show what was changed.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["settings"]]

    view: reactive[SettingsView | None] = reactive(None, init=False, repaint=False)
    outlook: reactive[MemoryOutlook | None] = reactive(None, init=False, repaint=False)
    next_run: reactive[bool] = reactive(False, init=False, repaint=False)

    list = getters.query_one(SettingsList)
    _typed = getters.query_one(ValueInput)
    _help = getters.query_one("#field-help", RowsPanel)

    def compose(self) -> ComposeResult:
        yield SettingsList(id="settings-list")
        # Of the estimate the first rows, the most important; what is left out is on a larger screen.
        yield RowsPanel(
            lambda outlook, most, ended, width: estimate_rows(outlook, width, ended)[:most], None, 1, "", id="estimate"
        )
        yield RowsPanel(help_rows, FieldHelpText("", ""), id="field-help")
        yield ValueInput(self._accept, self._close, id="typed")

    def on_mount(self) -> None:
        self._opened: frozenset[str] | None = None
        self._whole = self._partly = frozenset[str]()
        self._doing: Literal["editing", "finding"] | None = None
        self.watch(self.list, "cursor", self._show_help, init=False)
        self.watch(self.list, "scroll_y", self._entitle, init=False)

    @property
    def spec(self) -> FieldSpec | None:
        row = self.list.row
        if self.view is None or row is None:
            return None
        return next((spec for spec in self.view.specs if spec.name == row.name), None)

    def watch_view(self, view: SettingsView | None) -> None:
        if view is None:
            return
        self._show_rows()
        self._show_batch()
        self._show_help()
        self._place_estimate()

    def watch_next_run(self) -> None:
        self._opened = None
        self._show_rows()

    def _show_batch(self) -> None:
        if self.view is not None:
            self.border_subtitle = effective_batch(self.view, max(0, self.outer_size.width - BORDER_LABEL))

    @on(SettingsList.Resized)
    def _show_rows(self) -> None:
        """Show the groups that were opened; before one was, what fits without scrolling: all, or what is set."""
        if self.view is None:
            return
        name, group = (None, "") if self.list.row is None else (self.list.row.name, self.list.row.group)
        if self._opened is None:
            self._whole, self._partly = self._fitting_groups(self.view)
        rows = form_rows(self.view, self._whole if self._opened is None else self._opened, self.next_run, self._partly)
        self.list.rows = rows
        self._entitle()
        matches = (at for at, row in enumerate(rows) if (row.name, row.group) == (name, group))
        self.list.cursor = next(matches, self.list.cursor)

    def _fitting_groups(self, view: SettingsView) -> tuple[frozenset[str], frozenset[str]]:
        """Return the groups that are known if these fit without scrolling, and the first whose set fields fit.

        Of the latter those are last of which only the command knows most.
        """
        fields = group_fields(view.specs)
        groups = sorted(fields, key=lambda name: fmean(spec.name in view.unknown for spec in fields[name]) > 0.5)
        whole = [name for name in groups if view.unknown.isdisjoint(spec.name for spec in fields[name])]
        for opened, count in ((whole, len(groups)), *(((), count) for count in range(len(groups), 0, -1))):
            if len(form_rows(view, opened, self.next_run, groups[:count])) <= self.list.size.height:
                return frozenset(opened), frozenset(groups[:count])
        return frozenset(), frozenset()

    def _open_group(self, group: str, only_open: bool = False) -> None:
        """Open a group of fields, or close it."""
        opened = frozenset(row.group for row in self.list.rows if row.label.startswith("▾"))
        self._opened = opened | {group} if only_open else opened ^ {group}
        self._partly -= opened | {group}
        self._show_rows()

    def _entitle(self) -> None:
        """Show the preset and whether it was changed, that they are those of the next run, and what is hidden."""
        if self.view is None:
            return
        above = self.list.scroll_offset.y
        below = max(0, len(self.list.rows) - above - self.list.size.height)
        hidden = ", ".join(f"{number} {where}" for number, where in ((above, "above"), (below, "below")) if number)
        name = f"{self.view.preset or ''}{' changed' * self.view.dirty}".strip()
        parts = (panel_title("settings"), "next run" * self.next_run, name, hidden)
        (title,) = wrapped_parts(parts, self.outer_size.width - AROUND_TITLE, 1)
        set_border_text(self, title)

    def _place_estimate(self) -> None:
        bar, height = self.query_one("#estimate", RowsPanel), self.outer_size.height
        bar.display = height >= ROOM_FOR_ESTIMATE
        most = 4 if self.outlook is not None and self.outlook.data is not None else 3
        rows = most if height >= ROOM_FOR_MORE_HELP else 2 if height >= ROOM_FOR_TIME else 1
        bar.styles.height = rows
        bar.values = (self.outlook, rows, "" if self.view is None else self.view.ended)

    watch_outlook = _place_estimate

    def on_resize(self, event: Resize) -> None:
        self._place_estimate()
        self.call_after_refresh(self._entitle)
        text = self._help
        text.display = event.size.height >= ROOM_FOR_HELP
        text.styles.height = 4 if event.size.height >= ROOM_FOR_MORE_HELP and event.size.width < 60 else 3
        self._show_batch()
        self._place_input()

    def _show_help(self) -> None:
        spec, row = self.spec, self.list.row
        if self.view is not None and spec is not None:
            self._help.values = (field_help(self.view, spec),)
        elif self.view is not None and row is not None:
            self._help.values = (group_help(self.view, row.group),)

    def action_move(self, by: int) -> None:
        self.list.cursor += by

    def action_step(self, direction: int) -> None:
        spec, row = self.spec, self.list.row
        if spec is None and row is not None and row.label[0] in (f"▸{PARTLY}" if direction > 0 else "▾"):
            self._open_group(row.group)
        if self.view is None or spec is None:
            return
        value = getattr(self.view.resolved.settings, spec.name)
        new = step_value(spec, value, up=direction > 0)
        if new != value:
            self.post_message(SettingEdited(spec.name, format_input(spec, new)))

    def action_clear(self) -> None:
        spec = self.spec
        if spec is not None and spec.optional:
            self.post_message(SettingEdited(spec.name, ""))

    @on(SettingsList.Chosen)
    def action_edit(self) -> None:
        """Edit the value under the cursor in place, toggle a switch, or open and close a group."""
        spec, row = self.spec, self.list.row
        if self.view is not None and row is not None and row.name is None:
            self._open_group(row.group)
        if self.view is None or spec is None:
            return
        if spec.kind == "bool":
            self.action_step(1)
        elif spec.kind == "choice":
            self.post_message(ChoiceWanted(spec.name))
        else:
            value = getattr(self.view.resolved.settings, spec.name)
            self._doing, self._typed.placeholder = "editing", ""
            self._open("" if spec.name in self.view.unknown else format_input(spec, value))

    def action_find(self) -> None:
        self._doing = "finding"
        self._typed.placeholder = "search a setting"
        self._open("")

    def _place_input(self) -> None:
        """Place the input over the value that is edited, or where a setting is searched in the last row."""
        row, x, y, width = self.list.row, 2, max(0, self.size.height - 1), self.size.width - 4
        if self._doing == "editing":
            x, y = LABEL_COLUMNS + 2, self.list.cursor - self.list.scroll_offset.y
            width = 1 + (LEAST_VALUE_COLUMNS if row is None else _value_columns(row))
        self._typed.offset, self._typed.styles.width = (x, y), max(4, width)

    def _open(self, text: str) -> None:
        self._place_input()
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
        row, everything = self.list.row or FormRow(""), form_rows(self.view)
        matches = (at for at, item in enumerate(everything) if (item.name, item.group) == (row.name, row.group))
        index = find_field(everything, text, next(matches, 0) - 1)
        if index is None:
            return False
        name = everything[index].name
        if all(item.name != name for item in self.list.rows):
            self._open_group(everything[index].group, only_open=True)
        self.list.cursor = next(at for at, item in enumerate(self.list.rows) if item.name == name)
        return True

    def _check(self, text: str) -> bool:
        """Show the problem with `text` while it is typed; return True if it is valid."""
        spec = self.spec
        if self.view is None or spec is None:
            return False
        wrong = check_input(self.view, spec, text)
        self._typed.set_class(wrong is not None and wrong.tone == "error", "-wrong")
        self._help.values = (wrong or field_help(self.view, spec),)
        right = wrong is None or wrong.tone != "error"
        self.post_message(ValueTyped(spec.name, text if right else None))
        return right

    def _accept(self, text: str, then: int, edits: bool) -> None:
        spec = self.spec
        if self._doing == "editing" and spec is not None:
            if not self._check(text):
                return
            self.post_message(SettingEdited(spec.name, text))
        elif self._doing == "finding" and text and not self._find(text):
            return
        self.list.cursor += then
        if edits and self.spec is not None and self.spec.kind not in ("bool", "choice"):
            self.action_edit()  # the input keeps the focus, as to lose it gives up what is edited
        else:
            self._close()
