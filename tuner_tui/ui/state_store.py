"""Holds the current state, and hands what it implies down to the main screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace
from textual.screen import Screen

from tuner_tui.advice.estimate import EstimateRequest, MemoryOutlook
from tuner_tui.advice.finding import Finding
from tuner_tui.hardware.sample import Sample
from tuner_tui.settings.distributed import gpus_of_job
from tuner_tui.settings.job import Job
from tuner_tui.settings.model import FIELDS, OriginKind, Settings
from tuner_tui.settings.rules import Problem, find_problems
from tuner_tui.ui import status_text
from tuner_tui.ui.backend import Backend
from tuner_tui.ui.screens.main import MainScreen
from tuner_tui.ui.start_gpus import GpuChoice, gpus_of_start
from tuner_tui.ui.state import UiState
from tuner_tui.ui.terminal.base_app import BaseApp, Result
from tuner_tui.view.settings_form import SettingsView
from tuner_tui.view.tuning_rows import tuning_status


class StateStore:
    """The one mutable place of the screen's state. `ready` is set once the settings shown are those to train."""

    def __init__(
        self,
        backend: Backend,
        screen: MainScreen,
        ask_estimate: Callable[[EstimateRequest], object],
        keep_draft: Callable[[], object],
    ) -> None:
        self.state = UiState()
        self.ready = asyncio.Event()
        self._backend = backend
        self._screen = screen
        self._ask_estimate = ask_estimate
        self._keep_draft = keep_draft
        self._estimated_job: Job | None = None

    def update(self, state: UiState) -> None:
        # The order matters. Recommended values depend on machine, interpreter and job, so they are filled in as soon as
        # one of these is new. What the followed run has in effect then replaces our defaults. Only after both do
        # problems, estimate and help texts describe what would be trained. Reactives that do not change cost nothing.
        before = self.state
        if before.form_differs(state):
            state = self._with_recommended(state)
        state = state.with_seen(before)
        self.state = state
        if before.form_differs(state):
            self._screen.settings_view = self.settings_view(state)
            self.request_estimate()
            self._keep_draft()
        elif self._screen.settings_view is not None and before.view is not state.view:
            self._screen.settings_view = replace(self._screen.settings_view, in_effect=state.values_in_effect)
        (self.ready.set if state.ready else self.ready.clear)()
        job = None if state.loaded is None else state.loaded.job
        environment = self._backend.environment_findings(state.inventory, state.interpreter, job)
        errors = () if state.running else status_text.settings_errors(self._screen.settings_view)
        findings = (*(Finding("settings", "warning", error, (), "certain") for error in errors), *state.findings_shown)
        causes = {finding.cause for finding in findings}
        self._screen.machine = state.inventory, state.interpreter
        self._screen.view = state.view
        lacking = () if state.loaded is None or state.running else state.loaded.lacking
        self._screen.findings = (*findings, *(f for f in (*lacking, *environment) if f.cause not in causes))
        self._screen.running = state.running
        self._screen.run_name = "" if state.folder is None else state.folder.name
        self._screen.status = status_text.status_scene(state)
        self._screen.next_training = status_text.next_training(state)
        self._screen.tuning_sign = "" if state.tuning is None else tuning_status(state.tuning)
        self._screen.context = state.context
        self._screen.can_take_back = bool(state.changes_taken_back)
        self._screen.quiet_line = status_text.quiet_line(state)

    @property
    def outlook(self) -> MemoryOutlook | None:
        """Memory and time of the settings shown; None until they are estimated."""
        return self._screen.outlook

    @property
    def sample(self) -> Sample | None:
        """The newest sample shown: nobody waits for a driver that does not answer."""
        return self._screen.sample

    def choose_gpus(self, count: int | None) -> GpuChoice:
        """Return the start on `count` GPUs, with the values recommended for them and the effective batch kept."""
        choice = gpus_of_start(self.state, self.sample, count)
        if choice.state is self.state:
            return choice
        return choice._replace(state=self._with_recommended(choice.state)).with_batch_of(self.state)

    def request_estimate(self, state: UiState | None = None) -> None:
        """Ask for the memory of the settings in `state`, or of those shown; the answer is shown later."""
        request = estimate_request(state or self.state)
        if request is None or request.job != self._estimated_job:
            self._screen.outlook = None  # nothing is said of one job by the figures of another
        if request is not None:
            self._estimated_job = request.job
            self._ask_estimate(request)

    def launch_refusal(self, queued: bool = False) -> str:
        """Return why no training can be started now, or queued; empty if one can."""
        return status_text.launch_refusal(self.state, self._screen.settings_view, queued)

    def _with_recommended(self, state: UiState) -> UiState:
        inventory, interpreter, loaded, editing = state.inventory, state.interpreter, state.loaded, state.editing
        if inventory is None or interpreter is None or loaded is None or editing is None or loaded.as_it_ran:
            return state
        earlier = () if state.facts is None else state.facts.earlier
        current, saved = (
            self._backend.recommend(resolved, inventory, interpreter, loaded.job, earlier=earlier)
            for resolved in (editing.current, editing.saved)
        )
        return replace(state, editing=replace(editing, current=current, saved=saved))

    def settings_view(self, state: UiState) -> SettingsView | None:
        """Return what the form shows of a state, with the problems of its settings; None before they are known."""
        if state.loaded is None or state.editing is None:
            return None

        inventory, job, spread = state.inventory, state.loaded.job, state.data_parallel
        gpus = None if inventory is None else gpus_of_job(inventory, job)
        measured = state.editing.current.origin("dataloader_num_workers").remedy  # which looked at what the cores do
        cores = None if inventory is None or measured is not None else inventory.cpu.usable_cores

        def check(settings: Settings) -> tuple[Problem, ...]:
            return find_problems(settings, gpus=gpus, interpreter=state.interpreter, job=job, cores=cores)

        current = state.editing.current
        # What a program of its own does was observed to work: it is a fact, not a mistake.
        seen = {name for name, origin in current.origins.items() if origin.kind is OriginKind.OBSERVED}
        problems = check(current.settings)
        return SettingsView(
            specs=tuple(FIELDS.values()),
            resolved=current,
            saved=state.editing.saved,
            problems=tuple(problem for problem in problems if not seen.issuperset(problem.fields)),
            preset=state.loaded.preset,
            dirty=state.dirty,
            can_undo=state.can_undo,
            spread=spread if inventory and state.interpreter else spread._replace(perhaps=0),
            check=check,
            in_effect=state.values_in_effect,
            unknown=state.unknown_values,
            unknown_before=state.unknown_before,
            reading=state.is_reading_values,
            ended=state.failure,
        )


def estimate_request(state: UiState) -> EstimateRequest | None:
    """Return the request for the memory of the settings in `state`; None before machine and interpreter are known."""
    current, inventory, interpreter = state.current, state.inventory, state.interpreter
    if current is None or inventory is None or interpreter is None:
        return None
    return EstimateRequest(
        current.resolved,
        current.job,
        inventory,
        interpreter,
        memory_limit_bytes=current.memory_limit_bytes,
        worked_on=state.edited,
        training=state.running,
    )


class Requests:
    """Serves requests of the user about one subject: reads and updates the store, and calls the backend off the loop.

    The coroutines are run with `BaseApp.serve`, which shows a `BackendError` as a notification.
    """

    def __init__(self, app: BaseApp, store: StateStore, backend: Backend) -> None:
        self._app = app
        self._store = store
        self._backend = backend

    @property
    def _state(self) -> UiState:
        return self._store.state

    async def _ask_while(
        self, screen: Screen[Result], read: Callable[..., Coroutine[Any, Any, None]], *args: Any
    ) -> Result | None:
        """Show a screen, and run `read`, which reads what it shows, until it is closed."""
        reading = self._app.run_task(read, *args)
        try:
            return await self._app.ask(screen)
        finally:
            reading.cancel()
