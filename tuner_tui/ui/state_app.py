"""The app's state and where it comes from: read at the start, brought by the feeds, handed down to the screen.

Nothing here waits: whatever touches a file, a process or a driver is awaited off the loop, in a task of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from tuner_tui.ui.backend.daemon_thread import to_daemon_thread
from tuner_tui.ui.backend.estimates import EstimateFeed, EstimateRequest
from tuner_tui.ui.backend.feeds import FollowerFeed, SamplerFeed
from tuner_tui.ui.backend.interface import BackendError
from tuner_tui.ui.keys import KeyCommandProvider
from tuner_tui.ui.screen_state import status_text as words
from tuner_tui.ui.screen_state import ui_state as steps
from tuner_tui.ui.screen_state.ui_state import UiState
from tuner_tui.ui.screens.main import MainScreen
from tuner_tui.ui.terminal.base_app import BaseApp

if TYPE_CHECKING:
    from pathlib import Path

    from textual.command import Provider

    from tuner_tui.hardware.interpreter.probe import Interpreter
    from tuner_tui.runs.events.run_state import RunState
    from tuner_tui.settings.job import Job
    from tuner_tui.ui import messages as m
    from tuner_tui.ui.backend.interface import Backend, TrainingConfig


class StateApp(BaseApp):
    """Holds one immutable state and shows it. `start` gives what the settings panel shows first, `folder` the run."""

    CSS_PATH = "app.tcss"
    TITLE = "tuner-tui"
    COMMANDS: ClassVar[set[Callable[[], type[Provider]]]] = {lambda: KeyCommandProvider}  # type: ignore[assignment]

    def __init__(
        self,
        services: Backend,
        start: Callable[[], TrainingConfig],
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
        self._estimates = EstimateFeed(services.estimate, services.refined_estimate, self.post_message)
        self.main = MainScreen()
        self._known = asyncio.Event()
        self._launching = False
        self._python: Path | None = None

    def get_default_screen(self) -> MainScreen:
        return self.main

    def on_mount(self) -> None:
        """The first frame is drawn before anything heavy is imported or read."""
        self.leave_on_signals()
        self.end_with_threads()
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self.tidy_once()
        self._sampler.start()
        self._follower.start()
        for errand in (self._open_start(), self._read_inventory()):
            self.errand(errand)

    def on_unmount(self) -> None:
        """Threads are asked to end and not waited for."""
        self._sampler.stop()
        self._follower.stop()
        self._estimates.stop()

    # what is read at the start

    async def _open_start(self) -> None:
        specs = await to_daemon_thread(self.services.fields)
        self._show(replace(self.state, specs=tuple(specs)))
        try:
            start = await to_daemon_thread(self._start)
        except BackendError as error:
            self.exit(return_code=2, message=str(error))
            return
        self._open(start)
        self._follow(await to_daemon_thread(self._folder))

    async def _read_inventory(self) -> None:
        inventory = await to_daemon_thread(self.services.inventory)
        self._follower.inventory = self.main.inventory = inventory
        self._show(replace(self.state, inventory=inventory))

    async def _ask_interpreter(self, job: Job) -> None:
        """What starts and trains this job; a Python that is known already is not asked again."""
        accelerate = await to_daemon_thread(lambda: self.services.accelerate(job))
        self._show(replace(self.state, accelerate=accelerate))
        python = await to_daemon_thread(lambda: self.services.python(job))
        if python == self._python:
            return
        self._python = python
        self._known.clear()
        self._shows_interpreter(None)
        for ask in (self.services.versions, self.services.interpreter):
            interpreter = await to_daemon_thread(partial(ask, python))
            if self._python != python:  # another job since
                return
            self._shows_interpreter(interpreter)

    def _shows_interpreter(self, interpreter: Interpreter | None) -> None:
        self.main.interpreter = interpreter
        self._show(replace(self.state, interpreter=interpreter))

    # the state goes down

    def _show(self, state: UiState) -> None:
        before = self.state
        if steps.form_differs(before, state):
            state = steps.with_recommended_settings(state, self.services)
        self.state = state
        if steps.form_differs(before, state):
            self.main.settings_view = steps.settings_view(state, self.services)
            self._ask_memory(state)
        if steps.is_ready(state):
            self._known.set()
        self.main.findings = steps.all_findings(state, self.services)
        self.main.running = state.running
        self.main.run_title = words.run_title(state)
        self.main.tuning_sign = words.tuning_sign(state)
        self.main.outcome_line = words.outcome_line(state)
        self.main.quiet_line = words.quiet_line(state, self.main.settings_view)

    def _ask_memory(self, state: UiState) -> None:
        current, inventory, interpreter = state.current, state.inventory, state.interpreter
        if current is not None and inventory is not None and interpreter is not None:
            self._estimates.ask(
                EstimateRequest(
                    current.resolved.settings, current.job, inventory, interpreter,
                    current.memory_limit_bytes, steps.is_being_edited(state),
                    frozenset(current.resolved.given),
                )
            )  # fmt: skip

    def _open(self, preset: TrainingConfig) -> None:
        self._show(steps.with_loaded(self.state, preset))
        self.errand(self._ask_interpreter(preset.job))
        if preset.notes:
            self.say("\n".join(preset.notes), severity="warning")

    def _follow(self, folder: Path | None) -> None:
        if folder is not None:
            self.errand(to_daemon_thread(lambda: self.services.adopt(folder)))
            self.main.bring("live")
        self._follower.follow(folder)
        self.main.view, self.main.log_window = None, None
        self._show(replace(self.state, folder=folder, view=None, findings=()))

    # news from the feeds

    def on_sample_arrived(self, news: m.SampleArrived) -> None:
        self.main.sample = news.sample

    def on_run_view_arrived(self, news: m.RunViewArrived) -> None:
        before = self.state.view
        just_ended = before is not None and before.status.live and news.view.status.kind == "ended"
        if just_ended:
            self.ring(news.view.status.sentence)
        self.main.view = news.view
        self._sampler.watched = () if news.view.status.pid is None else (news.view.status.pid,)
        self._show(replace(self.state, view=news.view))
        if just_ended:
            self._ask_memory(self.state)  # what the run took puts the figure right
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

    def on_estimate_arrived(self, news: m.EstimateArrived) -> None:
        self.main.outlook = news.outlook

    def on_log_window_arrived(self, news: m.LogWindowArrived) -> None:
        self.main.log_window = news.window

    def on_trouble_arrived(self, news: m.TroubleArrived) -> None:
        self.say(news.sentence, "error" if news.grave else "warning")
