"""The app: holds the state, hands it to the screen, and does what the screen asks for through the services.

Nothing here waits: whatever touches a file, a process or a driver is awaited off the loop, in a task of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from tuner_tui.ui import run_words as words
from tuner_tui.ui import state as steps
from tuner_tui.ui.base_app import BaseApp
from tuner_tui.ui.commands import KeyCommands
from tuner_tui.ui.feeds import FollowerFeed, SamplerFeed
from tuner_tui.ui.screens.ask_name import NameScreen
from tuner_tui.ui.screens.confirm import ConfirmScreen
from tuner_tui.ui.screens.diff import DiffScreen
from tuner_tui.ui.screens.launch import LaunchScreen
from tuner_tui.ui.screens.main import MainScreen
from tuner_tui.ui.screens.pick import PickScreen
from tuner_tui.ui.services import NameTaken, ServiceError
from tuner_tui.ui.state import UiState
from tuner_tui.ui.threads import off_loop

if TYPE_CHECKING:
    from pathlib import Path

    from textual.command import Provider

    from tuner_tui.runs.state import RunState
    from tuner_tui.ui import messages as m
    from tuner_tui.ui.services import Opened, Services


class TunerApp(BaseApp):
    """One screen over one state. `start` gives what the settings panel shows first, `folder` the run to follow."""

    CSS_PATH = "app.tcss"
    TITLE = "tuner-tui"
    COMMANDS: ClassVar[set[Callable[[], type[Provider]]]] = {lambda: KeyCommands}  # type: ignore[assignment]

    def __init__(
        self,
        services: Services,
        start: Callable[[], Opened],
        folder: Callable[[], Path | None] = lambda: None,
        *,
        theme: str = "dark",
        colour: bool = True,
        ascii_only: bool = False,
    ) -> None:
        super().__init__(theme, colour, ascii_only)
        self.services = services
        self.state = UiState()
        self._start = start
        self._folder = folder
        self._sampler = SamplerFeed(services.open_sampler, self.post_message)
        self._follower = FollowerFeed(services, self.post_message)
        self.main = MainScreen()
        self._known = asyncio.Event()
        self._launching = False

    def get_default_screen(self) -> MainScreen:
        return self.main

    def on_mount(self) -> None:
        """The first frame is drawn before anything heavy is imported or read."""
        self.leave_on_signals()
        self.end_with_threads()
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self._sampler.start()
        self._follower.start()
        for errand in (self._open_start(), self._read_inventory(), self._ask_interpreter()):
            self.errand(errand)

    def on_unmount(self) -> None:
        """Threads are asked to end and not waited for."""
        self._sampler.stop()
        self._follower.stop()

    # what is read at the start

    async def _open_start(self) -> None:
        specs = await off_loop(self.services.fields)
        self._show(replace(self.state, specs=tuple(specs)))
        try:
            start = await off_loop(self._start)
        except ServiceError as error:
            self.exit(return_code=2, message=str(error))
            return
        self._open(start)
        self._follow(await off_loop(self._folder))

    async def _read_inventory(self) -> None:
        inventory = await off_loop(self.services.inventory)
        self._follower.inventory = self.main.inventory = inventory
        self._show(replace(self.state, inventory=inventory))

    async def _ask_interpreter(self) -> None:
        for ask in (self.services.versions, self.services.interpreter):
            interpreter = await off_loop(ask)
            self._follower.interpreter = self.main.interpreter = interpreter
            self._show(replace(self.state, interpreter=interpreter))

    # the state goes down

    def _show(self, state: UiState) -> None:
        before = self.state
        if steps.form_differs(before, state):
            state = steps.advised(state, self.services)
        self.state = state
        if steps.form_differs(before, state):
            self.main.settings_view = steps.settings_view(state, self.services)
        if steps.known(state):
            self._known.set()
        self.main.findings = steps.findings_shown(state, self.services)
        self.main.running = state.running
        self.main.run_title = words.run_title(state)
        self.main.quiet_line = words.quiet_line(state)

    def _follow(self, folder: Path | None) -> None:
        if folder is not None:
            self.errand(off_loop(lambda: self.services.adopt(folder)))
        self._follower.follow(folder)
        self.main.view, self.main.log_window = None, None
        self._show(replace(self.state, folder=folder, view=None, findings=()))

    # news from the feeds

    def on_sample_arrived(self, news: m.SampleArrived) -> None:
        self.main.sample = news.sample

    def on_run_view_arrived(self, news: m.RunViewArrived) -> None:
        before = self.state.view
        if before is not None and before.status.live and news.view.status.kind == "ended":
            self.ring(news.view.status.sentence)
        self.main.view = news.view
        self._sampler.watched = () if news.view.status.pid is None else (news.view.status.pid,)
        self._show(replace(self.state, view=news.view))
        if before is not None:
            self._tell_fallback(before.state, news.view.state)

    def _tell_fallback(self, before: RunState, now: RunState) -> None:
        """What the automatic fallback has just decided; a run that it continues is followed into the next."""
        if now.fallback_ended is not None and before.fallback_ended is None:
            self.say(now.fallback_ended, severity="error")
        if now.fell_back is None or before.fell_back is not None or self.state.folder is None:
            return
        self.say(f"Fallback {now.fell_back.number} of {now.fell_back.most}. {now.fell_back.sentence}", "warning")
        self._follow(self.state.folder.with_name(now.fell_back.into))

    def on_findings_arrived(self, news: m.FindingsArrived) -> None:
        self._show(replace(self.state, findings=news.findings))

    def on_log_window_arrived(self, news: m.LogWindowArrived) -> None:
        self.main.log_window = news.window

    def on_trouble_arrived(self, news: m.TroubleArrived) -> None:
        self.say(news.sentence, "error" if news.grave else "warning")

    # settings

    def on_setting_edited(self, wanted: m.SettingEdited) -> None:
        from tuner_tui.settings.errors import FieldError

        try:
            self._show(steps.edited(self.state, wanted.name, wanted.text))
        except FieldError as error:
            self.say(str(error), severity="error")

    def on_undo_wanted(self) -> None:
        self._show(steps.undone(self.state))

    def on_redo_wanted(self) -> None:
        self._show(steps.redone(self.state))

    def on_remedy_wanted(self, wanted: m.RemedyWanted) -> None:
        when = "for the next run; R restarts this one with it" if self.state.running else "for the next run"

        def apply(yes: bool | None) -> None:
            if yes:
                self._show(steps.remedied(self.state, wanted.finding.cause, wanted.remedy))
                self.say(f"{wanted.remedy.title}: set for the next run. u takes it back.")

        self.push_screen(DiffScreen(wanted.remedy, steps.changes_of(self.state, wanted.remedy), when), apply)

    # presets

    def on_presets_wanted(self) -> None:
        self.errand(self._pick_preset())

    async def _pick_preset(self) -> None:
        items = words.preset_items(await off_loop(self.services.presets))
        name = await self.push_screen_wait(PickScreen("Presets", items, "There is no preset."))
        if name is None:
            return
        if steps.dirty(self.state):
            question = f"Load {name}? The changes made since the last save are lost."
            if not await self.push_screen_wait(ConfirmScreen("Load", question, "load")):
                return
        self._open(await off_loop(lambda: self.services.load_preset(name)))

    def _open(self, preset: Opened) -> None:
        self._show(steps.opened(self.state, preset))
        if preset.notes:
            self.say("\n".join(preset.notes), severity="warning")

    def on_save_wanted(self) -> None:
        name = self.state.opened.preset if self.state.opened else None
        self.errand(self._save(name) if name else self._save_as())

    def on_save_as_wanted(self) -> None:
        self.errand(self._save_as())

    async def _save_as(self) -> None:
        now = self.state.opened.preset if self.state.opened else None
        name = await self.push_screen_wait(NameScreen("Save as", now or ""))
        if name is not None:
            await self._save(name)

    async def _save(self, name: str) -> None:
        current = self.state.current
        if current is None:
            return
        try:
            await off_loop(lambda: self.services.save_preset(name, current, False))
        except NameTaken as taken:
            if not await self.push_screen_wait(ConfirmScreen("Save", f"{taken} Replace it?", "replace")):
                return
            await off_loop(lambda: self.services.save_preset(name, current, True))
        self._show(steps.saved(self.state, name))
        self.say(f"Saved as {name}.")

    # runs

    def on_train_wanted(self) -> None:
        self.errand(self._train())

    async def _train(self) -> None:
        """Launch, once; a wish that comes while settings or box are still being read waits for them."""
        if self._launching:
            return
        self._launching = True
        try:
            if not self._known.is_set():
                self.say("The training starts as soon as settings and box have been read.")
                await self._known.wait()
            await self._launch()
        finally:
            self._launching = False

    async def _launch(self) -> None:
        current, refusal = self.state.current, words.refusal(self.state, self.main.settings_view)
        if current is None or refusal:
            self.say(refusal, severity="warning")
            return
        if not await self._agreed(current):
            return
        self.say("Starting the training.")
        self._follow(await off_loop(lambda: self.services.launch(current)))
        self.main.show_page("live")

    async def _agreed(self, current: Opened) -> bool:
        """Another's command is shown as it will run, with what it will not get; the built-in job is known."""
        if current.job.kind == "builtin":
            return True
        lines = await off_loop(lambda: self.services.preview(current))
        agreed = await self.push_screen_wait(LaunchScreen(lines))
        return agreed is True

    def on_job_wanted(self) -> None:
        self.errand(self._edit_job())

    async def _edit_job(self) -> None:
        from tuner_tui.ui.screens.job import JobScreen

        if self.state.opened is not None:
            job = await self.push_screen_wait(JobScreen(self.state.opened.job))
            if job is not None:
                self._show(steps.with_job(self.state, job))

    def on_restart_wanted(self) -> None:
        self.errand(self._restart())

    async def _restart(self) -> None:
        folder, current = self.state.folder, self.state.current
        if folder is None or self._launching:
            self.say("No run is followed.", severity="warning")
            return
        self._launching = True
        try:
            offer = await off_loop(lambda: self.services.restart(folder, current))
            if await self.push_screen_wait(ConfirmScreen("Restart", offer.question, "restart")):
                self.say(f"Restarting {folder.name}: it ends first.")
                self._follow(await off_loop(offer.go))
        finally:
            self._launching = False

    def on_stop_wanted(self) -> None:
        self.errand(self._stop())

    async def _stop(self) -> None:
        rung = words.next_rung(self.state)
        if rung is None or self.state.folder is None:
            self.say("No training of this screen runs.", severity="warning")
            return
        folder = self.state.folder
        if await self.push_screen_wait(ConfirmScreen(rung.heading, rung.question, rung.order)):
            await off_loop(lambda: self.services.order(folder, rung.order))

    def on_checkpoint_wanted(self) -> None:
        self.errand(self._checkpoint())

    async def _checkpoint(self) -> None:
        folder = self.state.folder
        if folder is None or not self.state.running:
            self.say("No training of this screen runs.", severity="warning")
            return
        await off_loop(lambda: self.services.order(folder, "checkpoint"))
        self.say("Asked for a checkpoint; it is saved after this step.")

    def on_runs_wanted(self) -> None:
        self.errand(self._pick_run())

    async def _pick_run(self) -> None:
        items = words.run_items(await off_loop(self.services.runs))
        folder = await self.push_screen_wait(PickScreen("Runs", items, "No run was started yet; t starts one."))
        if folder is not None:
            self._follow(folder)

    def on_attach_wanted(self, wanted: m.AttachWanted) -> None:
        self._follow(wanted.folder)

    # log

    def on_log_window_wanted(self, wanted: m.LogWindowWanted) -> None:
        self._follower.ask(wanted)

    def on_log_search_wanted(self, wanted: m.LogSearchWanted) -> None:
        self._follower.ask(wanted)

    # the program

    def on_theme_wanted(self) -> None:
        self.change_theme()

    def on_quit_wanted(self) -> None:
        self.exit(message=words.farewell(self.state))
