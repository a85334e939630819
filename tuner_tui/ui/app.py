"""The app of the main screen: composes feeds, store and controllers, and hands each request to one of them.

Nothing here blocks: whatever touches a file, a process or a driver runs on a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner_tui.advice.outlook import EstimateRequest
from tuner_tui.core.daemon_thread import to_daemon_thread
from tuner_tui.ui import messages as m
from tuner_tui.ui.backend.facade import Backend
from tuner_tui.ui.backend.feeds import HardwareFeed, RunFeed, RunNews, poll
from tuner_tui.ui.backend.records import BackendError, TrainingConfig
from tuner_tui.ui.controllers.queue import QueueController
from tuner_tui.ui.controllers.runs import ComparisonController, RunController
from tuner_tui.ui.controllers.settings import SettingsController
from tuner_tui.ui.controllers.tuning import TuningController
from tuner_tui.ui.keys import MAIN_KEYS, PAGE_KEYS
from tuner_tui.ui.screens.help import PaletteScreen
from tuner_tui.ui.screens.main import MainScreen
from tuner_tui.ui.state import UiState
from tuner_tui.ui.state_store import StateStore
from tuner_tui.ui.status_text import exit_message
from tuner_tui.ui.terminal.base_app import BaseApp

if TYPE_CHECKING:
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.runs.read.reader import RunView


ESTIMATE_IDLE_S = 1.5
"""Seconds without a new request before the refined estimate is computed."""
SAMPLE_VALID_S = 3.0
"""Age at which the newest sample of the followed run's supervisor is replaced by one of the screen's own."""


class TunerApp(BaseApp):
    """Watches, tunes and diagnoses trainings.

    `start` returns what the settings form shows first and the run to follow; it is called on a thread after the first
    frame.
    """

    CSS_PATH = "app.tcss"
    TITLE = "tuner-tui"

    def __init__(
        self,
        backend: Backend,
        start: Callable[[], tuple[TrainingConfig, Path | None]],
        *,
        theme: str = "dark",
        colour: bool = True,
        ascii_only: bool = False,
    ) -> None:
        super().__init__(theme, colour, ascii_only)
        self.main = MainScreen()
        self._backend = backend
        self._start = start
        self._hardware = HardwareFeed()
        self._run: RunFeed | None = None
        self._store = StateStore(backend, self.main, self._ask_estimate)
        self._settings = SettingsController(self, self._store, backend)
        self._comparison = ComparisonController(self, self._store, backend)
        self._runs = RunController(self, self._store, backend, self._comparison, self._show_run)
        self._tuning = TuningController(self, self._store, backend)
        self._queue = QueueController(self, self._store, backend, self._runs.follow)
        self._actions: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "train": self._runs.train,
            "restart": self._runs.restart,
            "stop": self._runs.stop,
            "checkpoint": self._runs.save_checkpoint,
            "runs": self._runs.pick,
            "tune": self._tuning.open,
            "start tuning": self._tuning.start_another,
            "abort tuning": self._tuning.abort,
            "resume tuning": self._tuning.resume,
            "pick tuning": self._tuning.pick,
            "apply winner": self._tuning.apply_winner,
            "job": self._settings.edit_job,
            "presets": self._settings.pick_preset,
            "save": self._settings.save,
            "save_as": self._settings.save_as,
            "copy": self._settings.copy,
            "memory": self._settings.show_memory,
            "queue": self._queue.open,
        }

    @property
    def state(self) -> UiState:
        """What the main screen shows."""
        return self._store.state

    def get_default_screen(self) -> MainScreen:
        return self.main

    # start and end

    def on_mount(self) -> None:
        """Draw the first frame before anything heavy is imported or read."""
        self.call_after_refresh(self._start_reading)

    def _start_reading(self) -> None:
        self.freeze_startup_objects()
        samples = self._hardware.samples(self._backend.open_sampler)
        self.run_task(poll, samples, self._show_sample, "The hardware cannot be sampled")
        self.run_task(self._open_start)
        self.run_task(self._read_inventory)
        self.run_task(self._tuning.watch_status)
        self.run_task(self._queue.wake)

    async def _open_start(self) -> None:
        try:
            config, folder = await to_daemon_thread(self._start)
        except BackendError as error:
            self.exit(return_code=2, message=str(error))
            return
        self._settings.load(config)
        self._runs.follow(folder)

    async def _read_inventory(self) -> None:
        inventory = await to_daemon_thread(self._backend.read_inventory)
        if self._run is not None:
            self._run.inventory = inventory
        self._store.update(replace(self.state, inventory=inventory))

    def action_leave(self) -> None:
        """Close the screen, and say what continues."""
        self.exit(message=exit_message(self.state))

    def action_command_palette(self) -> None:
        """Open the command palette over the main screen; the other screens have keys of their own."""
        if self.screen is self.main:
            self.serve(self._run_command)

    async def _run_command(self) -> None:
        action = await self.ask(PaletteScreen((*MAIN_KEYS, *PAGE_KEYS)))
        if action is not None:
            await self.main.run_action(action)

    # what is read

    def _show_sample(self, sample: Sample | None) -> None:
        if sample is not None:
            self.main.sample = sample

    def _show_run(self, folder: Path | None) -> None:
        self._run = self.main.log_window = None
        if folder is not None:
            self.main.reveal("live")
        self.run_task(self._follow, folder, only="run")

    async def _follow(self, folder: Path | None) -> None:
        if folder is not None:
            run = await to_daemon_thread(lambda: self._backend.follow_run(folder))
            self._run = RunFeed(run, self.state.inventory)
            await poll(self._run.news(), self._show_news, "The run can no longer be read")

    def _show_news(self, news: RunNews) -> None:
        if news.view != self.state.view:
            self._show_view(news.view)
        self.main.log_window = news.log
        if news.findings != self.state.findings:
            self._store.update(replace(self.state, findings=news.findings))

    def _show_view(self, view: RunView) -> None:
        self._hardware.watched = () if view.status.pid is None else (view.status.pid,)
        self._use_sample(view)
        self._runs.show_view(view)

    def _use_sample(self, view: RunView) -> None:
        """Show the newest sample of a live run in place of the screen's own while it is fresh."""
        # The supervisor of a live run writes a sample per second to the run's folder. As long as these are fresh they
        # are shown, and the screen's own sampler pauses: two readers would double the load on the driver.
        if not view.status.live or view.sample is None:
            self._hardware.covered_until_s = 0.0
            return
        now_s = time.time()
        self._hardware.covered_until_s = min(view.sample.time_s, now_s) + SAMPLE_VALID_S
        if self._hardware.covered_until_s > now_s:
            self.main.sample = view.sample

    def _ask_estimate(self, request: EstimateRequest) -> None:
        self.run_task(self._estimate, request, only="estimate")

    async def _estimate(self, request: EstimateRequest) -> None:
        """Show an estimate at once, and a refined one after a pause: it may trace the model for seconds."""
        self.main.outlook = await to_daemon_thread(lambda: self._backend.estimate(request))
        await asyncio.sleep(ESTIMATE_IDLE_S)
        better = await to_daemon_thread(lambda: self._backend.refine_estimate(request))
        self.main.outlook = better or self.main.outlook

    # requests of the user

    def action_do(self, what: str) -> None:
        """Do what a key of `keys.MAIN_KEYS` or `keys.TUNE_KEYS` says."""
        match what:
            case "undo":
                self._settings.undo()
            case "redo":
                self._settings.redo()
            case "compare":
                self.serve(self._comparison.compare, self.state.folder)
            case what:
                self.serve(self._actions[what])

    def action_remedy(self, what: str) -> None:
        """`apply` the remedy under the cursor, or show its `diff`; one that changes no setting is explained instead."""
        choice = self.main.choice
        if choice is None or choice.remedy is None or not choice.remedy.can_apply:
            self.main.action_why()
        elif what == "apply":
            self._settings.apply_remedy(choice.finding, choice.remedy)
        else:
            self.serve(self._settings.show_diff, choice.finding, choice.remedy)

    def on_setting_edited(self, request: m.SettingEdited) -> None:
        self._settings.edit(request.name, request.text)

    def on_choice_wanted(self, request: m.ChoiceWanted) -> None:
        self.serve(self._settings.choose, request.name)

    def on_value_typed(self, request: m.ValueTyped) -> None:
        self._settings.preview_edit(request.name, request.text)

    def on_log_window_wanted(self, request: m.LogWindowWanted | m.LogSearchWanted) -> None:
        self.run_task(self._show_log, request, only="log")

    on_log_search_wanted = on_log_window_wanted

    async def _show_log(self, request: m.LogWindowWanted | m.LogSearchWanted) -> None:
        run = self._run
        part = None if run is None else await to_daemon_thread(lambda: run.find(request))
        if isinstance(part, str):
            self.show_note(part, "warning")
        elif run is self._run:
            self.main.log_window = part
