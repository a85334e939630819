"""The app of the main screen: composes feeds, store and controllers, and hands each request to one of them.

Nothing here blocks: whatever touches a file, a process or a driver runs on a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tuner_tui.core.daemon_thread import to_daemon_thread
from tuner_tui.ui.backend.feeds import EstimateFeed, FollowerFeed, SamplerFeed
from tuner_tui.ui.backend.records import BackendError
from tuner_tui.ui.controllers.queue import QueueController
from tuner_tui.ui.controllers.runs import ComparisonController, RunController
from tuner_tui.ui.controllers.settings import SettingsController
from tuner_tui.ui.controllers.tuning import TuningController
from tuner_tui.ui.keys import MAIN_KEYS, PAGE_KEYS
from tuner_tui.ui.screens.main import MainScreen
from tuner_tui.ui.state_store import StateStore
from tuner_tui.ui.status_text import exit_message
from tuner_tui.ui.terminal.base_app import BaseApp

if TYPE_CHECKING:
    from pathlib import Path

    from tuner_tui.advice.finding import Finding
    from tuner_tui.runs.read.reader import RunView
    from tuner_tui.ui import messages as m
    from tuner_tui.ui.backend.facade import Backend
    from tuner_tui.ui.backend.records import TrainingConfig
    from tuner_tui.ui.state import UiState


SAMPLE_VALID_S = 3.0
"""Age at which the newest sample of the followed run's supervisor is replaced by one of the screen's own."""


class TunerApp(BaseApp):
    """Watches, tunes and diagnoses trainings.

    `start` returns what the settings form shows first, and `folder` the run to follow; both are called on a thread
    after the first frame.
    """

    CSS_PATH = "app.tcss"
    TITLE = "tuner-tui"

    def __init__(
        self,
        backend: Backend,
        start: Callable[[], TrainingConfig],
        folder: Callable[[], Path | None] = lambda: None,
        *,
        theme: str = "dark",
        colour: bool = True,
        ascii_only: bool = False,
    ) -> None:
        super().__init__(theme, colour, ascii_only)
        self.main = MainScreen()
        self._backend = backend
        self._start = start
        self._folder = folder
        later = partial(partial, self.call_later)
        self._sampler = SamplerFeed(backend.open_sampler, later(setattr, self.main, "sample"), self.later_note)
        self._follower = FollowerFeed(
            backend,
            later(self._show_view),
            later(setattr, self.main, "log_window"),
            later(self._show_findings),
            self.later_note,
        )
        self._estimates = EstimateFeed(backend, later(setattr, self.main, "outlook"))
        self._store = StateStore(backend, self.main, self._estimates.ask)
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
        self.exit_on_thread_errors()
        self.call_after_refresh(self._start_reading)

    def _start_reading(self) -> None:
        self.freeze_startup_objects()
        self._sampler.start()
        self._follower.start()
        self._estimates.start()
        self.run_task(self._open_start())
        self.run_task(self._read_inventory())
        self.run_task(self._tuning.watch_status())
        self.run_task(self._queue.wake())

    async def _open_start(self) -> None:
        try:
            config = await to_daemon_thread(self._start)
        except BackendError as error:
            self.exit(return_code=2, message=str(error))
            return
        self._settings.load(config)
        self._runs.follow(await to_daemon_thread(self._folder))

    async def _read_inventory(self) -> None:
        inventory = await to_daemon_thread(self._backend.read_inventory)
        self._follower.inventory = inventory
        self._store.update(replace(self.state, inventory=inventory))

    def on_unmount(self) -> None:
        """Ask the threads to end, without waiting for them."""
        self._sampler.stop()
        self._follower.stop()
        self._estimates.stop()
        self._tuning.stop()

    def action_leave(self) -> None:
        """Close the screen, and say what continues."""
        self.exit(message=exit_message(self.state))

    def action_command_palette(self) -> None:
        """Open the command palette over the main screen; the other screens have keys of their own."""
        if self.screen is self.main:
            self.serve(self._run_command)

    async def _run_command(self) -> None:
        from tuner_tui.ui.screens.help import PaletteScreen

        action = await self.ask(PaletteScreen((*MAIN_KEYS, *PAGE_KEYS)))
        if action is not None:
            await self.main.run_action(action)

    def _show_run(self, folder: Path | None) -> None:
        if folder is not None:
            self.main.reveal("live")
        self._follower.follow(folder)
        self.main.log_window = None

    # what the feeds bring

    def _show_view(self, view: RunView) -> None:
        self._sampler.watched = () if view.status.pid is None else (view.status.pid,)
        self._use_sample(view)
        self._runs.show_view(view)

    def _use_sample(self, view: RunView) -> None:
        """Show the newest sample of a live run in place of the screen's own while it is fresh."""
        # The supervisor of a live run writes a sample per second to the run's folder. As long as these are fresh they
        # are shown, and the screen's own sampler pauses: two readers would double the load on the driver.
        if not view.status.live or view.sample is None:
            self._sampler.covered_until_s = 0.0
            return
        now_s = time.time()
        self._sampler.covered_until_s = min(view.sample.time_s, now_s) + SAMPLE_VALID_S
        if self._sampler.covered_until_s > now_s:
            self.main.sample = view.sample

    def _show_findings(self, findings: tuple[Finding, ...]) -> None:
        self._store.update(replace(self.state, findings=findings))

    # requests of the user

    def action_do(self, what: str) -> None:
        """Do what a key of `keys.MAIN_KEYS` or `keys.TUNE_KEYS` says."""
        match what:
            case "undo":
                self._settings.undo()
            case "redo":
                self._settings.redo()
            case "queue":
                self.run_task(self._queue.open())
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

    def on_queue_add_wanted(self) -> None:
        self.run_task(self._queue.add())

    def on_queue_order_wanted(self, request: m.QueueOrderWanted) -> None:
        self.run_task(self._queue.order(request.what, request.entry))

    def on_log_window_wanted(self, request: m.LogWindowWanted | m.LogSearchWanted) -> None:
        self._follower.ask(request)

    on_log_search_wanted = on_log_window_wanted
