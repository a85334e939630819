"""The main screen: binds the panels to its reactives and lays out the panels."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input

from tuner_tui.core.text import end_at_word
from tuner_tui.ui.keys import GLOSSARIES, KEYS
from tuner_tui.ui.panels.arrangement import BELOW, BRIEF_ROWS, PAGES, STRIP, arrange, first_page, panel_title
from tuner_tui.ui.panels.bars import KeyFooter, PageTabs
from tuner_tui.ui.panels.layout import PanelGrid
from tuner_tui.ui.panels.live import LivePanel, PlotsPanel
from tuner_tui.ui.panels.output import OutputPanel
from tuner_tui.ui.panels.settings import SettingsList, SettingsPanel
from tuner_tui.ui.panels.troubleshooting import TroubleshootingPanel
from tuner_tui.ui.screens.dialogs import InspectionScreen, WhyScreen
from tuner_tui.ui.screens.full_screen import FullScreen
from tuner_tui.ui.terminal.base_widgets import RowsPanel, set_border_text
from tuner_tui.view.cells import READING
from tuner_tui.view.finding_rows import FindingChoice, can_retry, has_error
from tuner_tui.view.hardware_rows import hardware_rows, hardware_summary
from tuner_tui.view.sample_history import following_window
from tuner_tui.view.settings_form import SettingsView
from tuner_tui.view.status_line import StatusScene, status_line

if TYPE_CHECKING:
    from tuner_tui.advice.estimate import MemoryOutlook
    from tuner_tui.advice.finding import Finding
    from tuner_tui.hardware.interpreter import Interpreter
    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.runs.read.log_reader import LogWindow
    from tuner_tui.runs.read.reader import RunView
    from tuner_tui.runs.read.run_context import RunContext

WHILE_RUNNING, AFTER_RUN = ("train", "tune", "share"), ("stop", "checkpoint", "stacks", "profile")
WITHOUT_RUN = (*AFTER_RUN, "share", "copy_path")
"""Actions that have nothing to act on."""
HELPED = ("main", "app", "page", "settings", "troubles", "remedy", "output", "plots")
"""The tables of keys that the help shows."""
SEARCHED = 60
"""Characters of an error that are looked for in the output: what follows may be cut or wrapped there."""


class MainScreen(FullScreen):
    """The app sets the reactives; requests of the user go up to it as actions and messages."""

    AUTO_FOCUS = ""  # else a page without focus would be left for the settings when a dialog is closed
    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["main"], *KEYS["page"]]
    HELP_KEYS = tuple(chain.from_iterable(map(KEYS.__getitem__, HELPED)))
    GLOSSARY = GLOSSARIES["main"]

    settings_view: reactive[SettingsView | None] = reactive(None, init=False, repaint=False)
    outlook: reactive[MemoryOutlook | None] = reactive(None, init=False, repaint=False)
    machine: reactive[tuple[Inventory | None, Interpreter | None]] = reactive((None, None), init=False, repaint=False)
    sample: reactive[Sample | None] = reactive(None, init=False, repaint=False)
    view: reactive[RunView | None] = reactive(None, init=False, repaint=False)
    findings: reactive[tuple[Finding, ...]] = reactive((), init=False, repaint=False)
    log_window: reactive[LogWindow | None] = reactive(None, init=False, repaint=False)
    quiet_line: reactive[str] = reactive("", init=False, repaint=False)
    context: reactive[RunContext | None] = reactive(None, init=False, repaint=False)
    can_take_back: reactive[bool] = reactive(False, init=False, repaint=False)
    running: reactive[bool] = reactive(False, init=False, repaint=False)
    tuning_sign: reactive[str] = reactive("", init=False, repaint=False)
    run_name: reactive[str] = reactive("", init=False, repaint=False)
    next_run: reactive[bool] = reactive(False, init=False, repaint=False)
    status: reactive[StatusScene] = reactive(StatusScene(READING), init=False, repaint=False)
    next_training: reactive[tuple[tuple[str, str], ...]] = reactive((), init=False, repaint=False)
    now_s: reactive[float] = reactive(0.0, init=False, repaint=False)
    page: reactive[str] = reactive("settings", init=False, repaint=False)

    def compose(self) -> ComposeResult:
        here = MainScreen
        yield RowsPanel(lambda scene, width: [status_line(scene, width)], self.status, id="status")
        panels = (
            SettingsPanel(id="settings").data_bind(here.outlook, here.next_run, view=here.settings_view),
            *map(_bound, (LivePanel(id="live"), TroubleshootingPanel(id="troubles"))),
            *map(_bound, (OutputPanel(id="output"), PlotsPanel(id="plots"))),
        )
        # Before they are mounted: a class that is added later applies all styles a second time.
        for panel in panels:
            panel.add_class("panel")
            panel.border_title = panel_title(panel.id or "")
        yield PanelGrid(*panels, PageTabs(id=STRIP), id="panels")
        yield KeyFooter(id="keys")

    def on_mount(self) -> None:
        for name in ("findings", "selected"):  # the remedy under the cursor follows from both
            self.watch(self.query_one(TroubleshootingPanel), name, self._show_idle_keys, init=False)
        for name in ("running", "context", "settings_view", "machine", "can_take_back", "outlook", "page"):
            self.watch(self, name, self._show_idle_keys)
        self.show_page(first_page(self.app.size.width, self.app.size.height - 2))

    # reactives

    def watch_sample(self, sample: Sample | None) -> None:
        if sample is not None:
            self.now_s = sample.time_s

    def watch_now_s(self) -> None:
        self.query_one("#status", RowsPanel).values = (self.status._replace(now_s=self.now_s),)

    watch_status = watch_now_s

    def watch_machine(self, machine: tuple[Inventory | None, Interpreter | None]) -> None:
        inventory, interpreter = machine
        if inventory is not None:
            summary = hardware_summary(inventory, interpreter)
            self.query_one("#live").border_subtitle = Content(f"{summary} · i details")

    def watch_findings(self, before: tuple[Finding, ...], findings: tuple[Finding, ...]) -> None:
        if not _retries(before) and _retries(findings) and not isinstance(self.focused, Input):
            self.query_one(TroubleshootingPanel).focus()  # enter applies the remedy and resumes the run
        worst = min((f.severity for f in findings), key=["failed", "warning", "hint"].index, default="")
        self.query_one(PageTabs).trouble = (len(findings), worst)

    def watch_tuning_sign(self, sign: str) -> None:
        self.query_one(KeyFooter).signs = {"app.do('tune')": sign} if sign else {}

    def watch_run_name(self, name: str) -> None:
        self.next_run = bool(name)
        self.arrange_panels()
        if name:
            self.reveal("live")

    def watch_view(self, before: RunView | None, view: RunView | None) -> None:
        orders = [run is not None and (run.status, run.state.accepts_orders) for run in (before, view)]
        if view is None or orders[0] != orders[1]:
            self._show_idle_keys()
        just_ended = before is not None and before.status.live and view is not None and view.status.kind == "ended"
        if just_ended and self.is_current:
            self.reveal("live")
        ended = view is not None and view.state.finished is not None
        set_border_text(self.query_one("#live"), "2 Result" if ended else panel_title("live"))
        self.query_one(PageTabs).ended = ended

    def _show_idle_keys(self) -> None:
        without = WITHOUT_RUN if self.view is None else WHILE_RUNNING if self.running else AFTER_RUN
        idle = {f"app.do('{action}')" for action in without}
        outcome = None if self.view is None else self.view.status.outcome
        saved = self.view is not None and (self.view.state.checkpoint or (self.context and self.context.checkpoint))
        if outcome in (None, "completed") or not saved:
            idle.add("app.do('restart')")
        if self.view is not None and not self.view.state.accepts_orders:
            idle.add("app.do('checkpoint')")
        idle.add("" if self.view is not None and self.view.state.loss_problem else "app.do('replay')")
        idle.add("" if self.outlook is None or self.outlook.largest is not None else "app.do('fit')")
        idle.add("" if self.can_take_back else "app.do('take_back')")
        idle.add("" if self.machine[0] is not None and len(self.machine[0].gpus) > 1 else "app.do('gpus')")
        idle |= {"app.do('compare')", "app.do('copy_path')"} if self.view is None else set()
        idle.add("" if self.view and has_error(outcome, self.view.state.raised, self.findings) else "error")
        finding, remedy = self.choice or (None, None)
        usable = remedy is not None and remedy.can_apply
        idle.add("" if usable else "app.remedy('apply')")
        idle |= set() if finding is not None else {"app.remedy('retry')", "app.remedy('diff')", "why"}
        idle.add("" if self.settings_view is not None and self.settings_view.can_undo else "app.do('undo')")
        again = remedy is not None and finding is not None and can_retry(finding, remedy) and not self.running
        enter = "Apply, run again" if again else "Apply" if usable else "Why"
        idle.add("" if self.page in {*self.query_one(PageTabs).pages} - {"settings", "live"} else "back")
        footer = self.query_one(KeyFooter)
        footer.idle, footer.labels = frozenset(idle), {"app.remedy('retry')": enter}

    # layout

    def arrange_panels(self) -> None:
        width, footer, status = self.size.width, self.size.height > 4, self.size.height > 1
        self.query_one(KeyFooter).display = footer
        self.query_one("#status").display = status
        troubles = self.query_one(TroubleshootingPanel)
        arrangement = arrange(
            width, self.size.height - footer - status, self.page, troubles.wanted_rows, troubles.quiet_rows,
            self.next_run,
        )  # fmt: skip
        strip = self.query_one(PageTabs)
        strip.pages, strip.numbers, strip.shown = arrangement.paged, PAGES, arrangement.active
        for page in BELOW:  # where the tabs name it, it has no title of its own
            set_border_text(self.query_one(f"#{page}"), "" if page == arrangement.active else panel_title(page))
        box = arrangement.boxes.get("troubles")
        troubles.set_class(box is not None and box.height == BRIEF_ROWS, "-brief")
        self.query_one(PlotsPanel).loss = "live" not in arrangement.boxes
        self.query_one(PanelGrid).show(arrangement)

    on_resize = watch_page = on_troubleshooting_panel_rows_changed = arrange_panels

    def show_page(self, page: str) -> None:
        self.page = page
        (self.query_one(SettingsList) if page == "settings" else self.query_one(f"#{page}")).focus()

    def reveal(self, page: str) -> None:
        """Show a page that is hidden behind another one, unless somebody types there."""
        strip = self.query_one(PageTabs)
        if page in strip.pages and strip.shown != page and not isinstance(self.focused, Input):
            self.show_page(page)

    def on_descendant_focus(self) -> None:
        """Make the panel that was focused with the mouse the current page."""
        focused = self.focused
        while focused is not None and focused.id not in PAGES:
            focused = focused.parent  # type: ignore[assignment]
        if focused is not None and focused.id is not None:
            self.page = focused.id

    def action_page(self, number: int) -> None:
        self.show_page(PAGES[number - 1])

    def action_back(self) -> None:
        self.show_page("live" if self.next_run else "settings")

    def action_panel(self, by: int) -> None:
        self.show_page(PAGES[(PAGES.index(self.page) + by) % len(PAGES)])

    # requests

    @property
    def choice(self) -> FindingChoice | None:
        return self.query_one(TroubleshootingPanel).choice

    def action_why(self) -> None:
        if self.choice is not None:
            self.app.push_screen(WhyScreen(self.choice))

    def action_machine(self) -> None:
        inventory = self.machine[0]
        heading = "Machine" if inventory is None else f"Machine · {inventory.hostname}"
        self.app.push_screen(InspectionScreen(heading, partial(hardware_rows, *self.machine)))

    def action_window(self) -> None:
        """Show the next longer past in histories, after the longest the shortest."""
        live = self.query_one(LivePanel)
        live.window = following_window(live.window)

    def action_search(self) -> None:
        """Search the output, or the settings while there is none."""
        has_output = self.log_window is not None and self.log_window.lines
        self.show_page("output" if has_output else "settings")
        (self.query_one(OutputPanel).action_find if has_output else self.query_one(SettingsPanel).action_find)()

    def action_error(self) -> None:
        self.show_page("output")
        quoted = (finding.evidence[0] for finding in self.findings if finding.severity == "failed" and finding.evidence)
        error = next((text for text in quoted if "Error:" in text), "Error:")
        error = end_at_word(error, SEARCHED).partition("…")[0].rstrip()
        output, window = self.query_one(OutputPanel), self.log_window
        lines = window.lines if window is not None and window.at_start and window.at_end else ()
        if lines and not any(error.lower() in text.lower() for text in lines):
            output.action_end()
            self.notify("The output contains no error; this is its end.")
            return
        # Once the page has its height, by which the match is brought into view with what stands above it.
        self.call_after_refresh(output.search_for, error, True)


def _bound(widget: Widget) -> Widget:
    """Return the widget with the reactives of its class bound to those of the same names here."""
    names = vars(type(widget)).keys() & vars(MainScreen).keys()
    shared = [vars(MainScreen)[name] for name in sorted(names) if isinstance(vars(MainScreen)[name], reactive)]
    return widget.data_bind(*shared)


def _retries(findings: tuple[Finding, ...]) -> bool:
    """Return whether a remedy can start the run again that one of `findings` ended."""
    return any(can_retry(finding, remedy) for finding in findings for remedy in finding.remedies)
