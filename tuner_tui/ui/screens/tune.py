"""The tune screen (status, trials, skipped changes) and the dialog that starts a tuning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from tuner_tui.core.units import format_short_duration
from tuner_tui.ui.keys import GLOSSARIES, KEYS
from tuner_tui.ui.panels.bars import KeyFooter, PageTabs
from tuner_tui.ui.records import TrialPlacement, TuningPlan, TuningSnapshot, TuningWish
from tuner_tui.ui.screens.dialogs import Choice, Dialog, label_table
from tuner_tui.ui.screens.full_screen import FullScreen
from tuner_tui.ui.terminal.base_widgets import Canvas, LineInput, RowsPanel, set_border_text
from tuner_tui.view.cells import Line
from tuner_tui.view.tuning_rows import applicable_winner, can_resume, race_rows, skipped_rows, tuning_rows


class TrialsPanel(RowsPanel):
    """The race of the trials, which follows the newest one until it is scrolled."""

    _at_end = True

    def rows(self, width: int, height: int) -> Sequence[Line]:
        rows = super().rows(width, height)
        if self._at_end:
            self.set_reactive(Canvas.top, max(0, len(rows) - height))
        return rows

    def action_scroll_rows(self, by: int) -> None:
        """Scroll by rows; at the end new trials are followed."""
        rows = len(super().rows(*self.size))
        super().action_scroll_rows(by)
        self._at_end = self.top >= rows - self.size.height


GAP = 2
MIN_MINUTES = 0.1
INVALID_MINUTES = "Enter minutes, such as 9 or 2.5."
MINUTES_LABEL, TRIALS_LABEL = "At most", "Trials"


class TuneStartScreen(Dialog[TuningWish]):
    """Shows the plan of a tuning; returns the minutes that it may take and where its trials run."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["tune start"]]

    def __init__(self, plan: TuningPlan, wish: TuningWish, heading: str = "Tune") -> None:
        super().__init__()
        self.heading = heading
        tab = "tab trials · " if len(plan.placements) > 1 else ""
        self.hint = f"type the minutes · {tab}enter start · esc back"
        self._plan = plan
        self._wish = wish

    def body(self) -> Iterable[Widget]:
        yield VerticalScroll(Static(label_table(self._plan.lines)), can_focus=False)
        minutes = LineInput(f"{self._wish.minutes:g}", select=True, id="minutes")
        minutes.restrict = r"[0-9]{0,5}\.?[0-9]{0,2}"
        least = "" if self._plan.least_minutes is None else f", at least {self._plan.least_minutes:g}"
        note = Label(f"min{least} · x stops it earlier", classes="note")
        yield Horizontal(self._label(MINUTES_LABEL), minutes, note, classes="row")
        placements = self._plan.placements
        if len(placements) > 1:
            chosen = placements.get(self._wish.placement, placements["sequential"])
            trials = Choice(tuple(placements.values()), chosen, id="trials")
            yield Horizontal(self._label(TRIALS_LABEL), trials, classes="row")

    def _label(self, text: str) -> Label:
        label = Label(text, classes="label")
        label.styles.width = max(map(len, (MINUTES_LABEL, *(label for label, _ in self._plan.lines)))) + GAP
        return label

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    @on(Input.Submitted)
    def action_accept(self) -> None:
        """Return the minutes and where trials run, or show why the minutes are not valid."""
        minutes, least = parse_minutes(self.query_one(Input).value), self._plan.least_minutes
        if minutes is None:
            self._refuse(INVALID_MINUTES)
        elif least is not None and minutes < least:
            self._refuse(f"It needs at least {least:g} min.")
        else:
            self.dismiss(TuningWish(minutes, self._placement()))

    def _placement(self) -> TrialPlacement:
        if len(self._plan.placements) < 2:
            return "sequential"
        chosen = self.query_one("#trials", Choice).value
        return next(placement for placement, text in self._plan.placements.items() if text == chosen)

    def _refuse(self, reason: str) -> None:
        note = self.query_one(".note", Label)
        note.update(reason)
        note.add_class("-wrong")


def parse_minutes(text: str) -> float | None:
    """Parse minutes; return None if `text` is no number or below `MIN_MINUTES`."""
    try:
        minutes = float(text)
    except ValueError:
        return None
    return minutes if minutes >= MIN_MINUTES else None


FRAME = 2
WIDE_COLUMNS, WIDE_ROWS = 100, 30
"""On a smaller screen only one of the panels below the head is shown."""
PAGES = ("trials", "skipped")


class TuneScreen(FullScreen):
    """Shows `snapshot`, which the app sets."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["tune"]]
    HELP_KEYS = KEYS["tune"]
    GLOSSARY = GLOSSARIES["tune"]

    snapshot: reactive[TuningSnapshot | None] = reactive(None, init=False, repaint=False)
    page: reactive[str] = reactive("trials", init=False, repaint=False)

    def __init__(self) -> None:
        super().__init__()
        self._head = RowsPanel(tuning_rows, None, None, classes="panel")
        self._trials = TrialsPanel(race_rows, None, {}, can_focus=True, fills=True, id="trials", classes="panel")
        self._skipped = RowsPanel(skipped_rows, None, can_focus=True, id="skipped", classes="panel")
        for panel, title in ((self._head, "Tuning"), (self._trials, "Trials"), (self._skipped, "Not tried")):
            panel.border_title = title

    def compose(self) -> ComposeResult:
        yield self._head
        yield PageTabs()
        yield self._trials
        yield self._skipped
        yield KeyFooter()

    def on_mount(self) -> None:
        strip = self.query_one(PageTabs)
        strip.pages = strip.numbers = PAGES
        self._trials.focus()
        self._show_idle_keys()

    def watch_snapshot(self, snapshot: TuningSnapshot | None) -> None:
        view = None if snapshot is None else snapshot.view
        self._head.values = (view, None if snapshot is None else snapshot.now_s)
        self._trials.values = (view, {} if snapshot is None else snapshot.live)
        self._skipped.values = (view,)
        if view is not None:
            spent = snapshot and snapshot.now_s and f" for {format_short_duration(snapshot.now_s - view.created_t)}"
            set_border_text(self._head, f"Tuning {view.id} · {view.title} · {view.status}{spent or ''}")
        self._show_idle_keys()
        self._arrange()

    def _show_idle_keys(self) -> None:
        view = None if self.snapshot is None else self.snapshot.view
        idle = {
            "app.do('apply winner')": view is None or applicable_winner(view) is None,
            "app.do('abort tuning')": view is None or view.status != "running",
            "app.do('resume tuning')": view is None or not can_resume(view),
            "app.do('start tuning')": view is None or view.status == "running",
        }
        self.query_one(KeyFooter).idle = frozenset(action for action, is_idle in idle.items() if is_idle)

    def _arrange(self) -> None:
        """Give the head the rows it needs; below it a small screen shows one panel at a time."""
        if not self.size.width:
            return
        wide = self.size.width >= WIDE_COLUMNS and self.size.height >= WIDE_ROWS
        width, height = max(1, self.size.width - 2 * FRAME), self.size.height
        rows = min(len(self._head.rows(width, 0)), height // 2) + FRAME
        if self._head.styles.height is None or self._head.styles.height.value != rows:
            self._head.styles.height = rows
        strip = self.query_one(PageTabs)
        strip.display, strip.shown = not wide, self.page
        self._trials.display = wide or self.page == "trials"
        self._skipped.display = wide or self.page == "skipped"
        trials, skipped = (len(RowsPanel.rows(each, width, height)) + FRAME for each in (self._trials, self._skipped))
        most = max(height // 3, height - rows - trials - 1)
        self._skipped.styles.height = min(skipped, most) if wide else "1fr"

    on_resize = watch_page = _arrange

    def action_page(self, number: int) -> None:
        self.page = PAGES[number - 1]
        self.query_one(f"#{self.page}").focus()

    def action_panel(self, by: int) -> None:
        self.action_page((PAGES.index(self.page) + by) % len(PAGES) + 1)
