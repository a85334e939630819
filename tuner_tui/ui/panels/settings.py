"""The settings panel: every field with its origin and problems, edited in place; the memory estimate and the field's
help below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from rich.text import Text
from textual import on
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive

from tuner_tui.ui.drawing.cells import Row
from tuner_tui.ui.drawing.estimate_rows import estimate_rows
from tuner_tui.ui.drawing.settings_form import (
    FieldHelpText,
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
from tuner_tui.ui.keys import EDIT_KEYS, SETTINGS_KEYS
from tuner_tui.ui.messages import ChoiceWanted, SettingEdited, ValueTyped
from tuner_tui.ui.panels.layout import panel_title
from tuner_tui.ui.terminal.base_widgets import CachedWidget, LineInput
from tuner_tui.ui.widgets.canvas import Canvas
from tuner_tui.ui.widgets.settings_list import SettingsList

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.events import Blur, Resize

    from tuner_tui.settings.model import FieldSpec
    from tuner_tui.ui.backend.records import MemoryOutlook


class EstimateBar(Canvas):
    """Shows the estimates of memory and time in `outlook`, in up to four rows; None while they are unknown."""

    REDRAW_ON = ("outlook",)

    outlook: reactive[MemoryOutlook | None] = reactive(None, repaint=False)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return estimate_rows(self.outlook, width)[:height]


class FieldHelp(CachedWidget):
    """The facts of a field on one dim line, its help or problem below."""

    DEFAULT_CSS = """
    FieldHelp {
        height: 3;
        .help--quiet { color: $quiet; }
        .help--warning { color: $warning; }
        .help--error { color: $error; text-style: bold; }
    }
    """
    COMPONENT_CLASSES = {"help--quiet", "help--warning", "help--error"}  # noqa: RUF012

    shown: reactive[FieldHelpText] = reactive(FieldHelpText("", ""))

    def render(self) -> Text:
        quiet = self.get_component_rich_style("help--quiet", partial=True)
        tone = self.shown.tone
        style = self.get_component_rich_style(f"help--{tone}", partial=True) if tone in ("warning", "error") else ""
        facts = Text(self.shown.facts, style=quiet, no_wrap=True, overflow="ellipsis")
        facts.truncate(self.size.width, overflow="ellipsis")
        return Text.assemble(facts, "\n", (self.shown.sentence, style))


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


class SettingsPanel(CachedWidget, Vertical):
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

    def watch_outlook(self, outlook: MemoryOutlook | None) -> None:
        self.query_one(EstimateBar).outlook = outlook
        self._place_estimate(self.outer_size.height)

    @on(SettingsList.Scrolled)
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
        lines = self.query_one(FieldHelp)
        lines.display = event.size.height >= ROOM_FOR_HELP
        lines.styles.height = 4 if event.size.height >= ROOM_FOR_MORE_HELP and event.size.width < 60 else 3
        self._show_batch()
        if self._doing == "editing":
            self._place_over_value()

    @on(SettingsList.CursorMoved)
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
        """Step the value under the cursor up or down."""
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
        """Find a field by its name."""
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
