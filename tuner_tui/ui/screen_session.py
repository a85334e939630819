"""What the main screen shows and serves: the feeds, the state, and the requests of the user.

It is imported after the first frame, with the rest of the program. Nothing here blocks: whatever touches a file, a
process or a driver runs on a thread.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tuner_tui.advice.estimate import EstimateRequest
from tuner_tui.advice.recommend.target import with_memory_of_others
from tuner_tui.core.daemon_thread import to_daemon_thread
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.read.log_reader import LogWindow
from tuner_tui.runs.read.reader import RunView
from tuner_tui.ui.backend import Backend
from tuner_tui.ui.feeds import BackendError, HardwareFeed, poll
from tuner_tui.ui.panels.output import LogSearchWanted, LogWindowWanted
from tuner_tui.ui.records import TrainingConfig
from tuner_tui.ui.run_requests import RunRequests
from tuner_tui.ui.screens.main import MainScreen
from tuner_tui.ui.settings_requests import SettingsRequests
from tuner_tui.ui.state import IN_USE, UiState
from tuner_tui.ui.state_store import StateStore
from tuner_tui.ui.status_text import exit_message
from tuner_tui.ui.terminal.base_app import BaseApp
from tuner_tui.ui.tuning_requests import TuningRequests
from tuner_tui.view.finding_rows import can_retry

if TYPE_CHECKING:
    from tuner_tui.ui.followed_run import FollowedRun, RunNews

ESTIMATE_IDLE_S = 1.5
"""Seconds without a new request before the refined estimate is computed."""
NO_OUTPUT = LogWindow((), (), 0, 0, 0, True, True)
"""Of no run; None is that of a run that was not read yet."""
DRAFT_DELAY_S = 0.5
"""Seconds after a change until it is kept, so that a key held down writes one file."""
ROOM_EVERY_S = 30.0
"""Seconds between two looks at the memory of other programs: a new estimate after each takes 20 ms."""
SAMPLE_VALID_S = 3.0
"""Age at which the newest sample of the followed run's supervisor is replaced by one of the screen's own."""


class ScreenSession:
    """Reads for the main screen, and does what the user asks for there."""

    def __init__(self, app: BaseApp, main: MainScreen, backend: Backend) -> None:
        self._app = app
        self._main = main
        self._backend = backend
        self._hardware = HardwareFeed()
        self._run: FollowedRun | None = None
        self._room_t = -math.inf
        self._has_news = asyncio.Event()
        ask_estimate = partial(app.run_task, self._estimate, only="estimate")
        self._store = StateStore(backend, main, ask_estimate, self._keep_draft)
        self.settings = SettingsRequests(app, self._store, backend)
        self._runs = RunRequests(app, self._store, backend, self._show_run, self.settings.load)
        self._tuning = TuningRequests(app, self._store, backend)

    @property
    def state(self) -> UiState:
        return self._store.state

    def exit_message(self) -> str | None:
        return exit_message(self.state)

    async def start(self, choose: Callable[[Backend], tuple[TrainingConfig, Path | None]]) -> None:
        """Start to read. `choose` returns what the settings form shows first and the run to follow.

        Returns once these are shown, so that a request finds what it is about.
        """
        samples = self._hardware.samples(self._backend.open_sampler)
        self._app.run_task(poll, samples, self._show_sample, "The hardware cannot be sampled")
        self._app.run_task(self._read_inventory)
        self._app.run_task(self._tuning.watch_status)
        self._app.run_task(self._runs.watch_recent)
        self._app.run_task(to_daemon_thread, self._backend.wake_queue)
        try:
            config, folder = await to_daemon_thread(lambda: choose(self._backend))
        except BackendError as error:
            self._app.exit(return_code=2, message=str(error))
            return
        self.settings.load(config)
        self._runs.follow(folder)
        if folder is not None:  # a key that steps a value is meant for the one that the run has
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_news.wait(), self._app.answer_limit_s)
        await self.settings.restore_draft()
        news = None if config.named else await to_daemon_thread(self._backend.tuning_to_open)
        if folder is None and news is not None:
            self._app.serve(self._tuning.show, news)
        await to_daemon_thread(self._backend.mark_opened)

    def _keep_draft(self) -> None:
        self._app.run_task(self.settings.keep_draft, DRAFT_DELAY_S, only="draft")

    async def _read_inventory(self) -> None:
        self._use_inventory(await to_daemon_thread(self._backend.read_inventory))

    def _use_inventory(self, inventory: Inventory) -> None:
        if self._run is not None:
            self._run.inventory = inventory
        self._store.update(replace(self.state, inventory=inventory))

    # what is read

    def _show_sample(self, sample: Sample) -> None:
        """Show a sample, and now and then what other programs leave of the GPUs for the next run."""
        self._main.sample = sample
        inventory = self.state.inventory
        if inventory is None or abs(sample.time_s - self._room_t) < ROOM_EVERY_S:
            return
        self._room_t = sample.time_s
        current = with_memory_of_others(inventory, sample)
        if current is not inventory:
            self._use_inventory(current)

    def _show_run(self, folder: Path | None) -> None:
        self._run = None
        self._main.log_window = NO_OUTPUT if folder is None else None
        if folder is not None:
            self._main.reveal("live")
        self._app.run_task(self._follow, folder, only="run")

    async def _follow(self, folder: Path | None) -> None:
        if folder is not None:
            self._run = await to_daemon_thread(lambda: self._backend.follow_run(folder))
            self._run.inventory = self.state.inventory
            await poll(self._run.news(), self._show_news, "The run can no longer be read")

    def _show_news(self, news: RunNews) -> None:
        if news.view != self.state.view:
            self._hardware.watched = () if news.view.status.pid is None else (news.view.status.pid,)
            self._use_sample(news.view)
            ran = self.state.running
            self._runs.show_view(news.view)
            if ran and not self.state.running and self.state.loaded is not None:
                self._app.run_task(self.settings.read_job, self.state.loaded.job)  # it has measured a speed
        self._main.log_window = news.log
        if (news.findings, news.context) != (self.state.findings, self.state.context):
            self._store.update(replace(self.state, findings=news.findings, context=news.context))
        self._has_news.set()

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
            self._show_sample(view.sample)

    async def _estimate(self, request: EstimateRequest) -> None:
        """Show an estimate at once, and a refined one after a pause: it may trace the model for seconds."""
        self._main.outlook = await to_daemon_thread(lambda: self._backend.estimates.quick(request))
        await asyncio.sleep(ESTIMATE_IDLE_S)
        self._main.outlook = await to_daemon_thread(lambda: self._backend.estimates.refined(request))

    # requests of the user

    def do(self, action: str) -> None:
        """Call the `action_…` method of that name; one that waits is served as a task."""
        name = f"action_{action.replace(' ', '_')}"
        request = next(filter(None, (getattr(part, name, None) for part in (self._runs, self.settings, self._tuning))))
        self._app.serve(request) if iscoroutinefunction(request) else request()

    def remedy(self, action: str) -> None:
        """`apply` the remedy under the cursor, `retry` the ended run with it, or show its `diff`.

        One that changes no setting is explained instead.
        """
        choice = self._main.choice
        if choice is None or choice.remedy is None or not choice.remedy.can_apply:
            remedy = None if choice is None or action == "retry" else choice.remedy
            if remedy is not None and remedy.title.endswith(f" {IN_USE}"):
                self._app.show_note("This is already set for the next run; u undoes it.")
                return
            if remedy is not None:
                self._app.show_note("This remedy is done by hand; it changes no setting.")
            self._main.action_why()
        elif action == "retry" and can_retry(choice.finding, choice.remedy) and not self.state.running:
            self._app.serve(self._runs.retry, choice.finding, choice.remedy)
        elif action != "diff":
            self.settings.apply_remedy(choice.finding, choice.remedy)
        else:
            self._app.serve(self.settings.show_diff, choice.finding, choice.remedy)

    async def show_log(self, request: LogWindowWanted | LogSearchWanted) -> None:
        run = self._run
        window = NO_OUTPUT if run is None else await to_daemon_thread(lambda: run.find(request))
        if isinstance(window, str):
            self._app.show_note(window, "warning")
        elif run is self._run:
            self._main.log_window = window
