"""Starts, follows, stops, restarts, queues and compares trainings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.core.daemon_thread import to_daemon_thread
from tuner_tui.runs.events.run_state import RunState, checkpoint_refusal
from tuner_tui.runs.read.reader import RunRow, RunView
from tuner_tui.runs.store.folder import Order
from tuner_tui.settings.job import OF_RUNTIME
from tuner_tui.settings.model import Origin, OriginKind
from tuner_tui.ui.backend import Backend
from tuner_tui.ui.feeds import UNREADABLE, BackendError, poll
from tuner_tui.ui.records import LaunchOffer, TrainingConfig
from tuner_tui.ui.report_file import render_report, report_problem
from tuner_tui.ui.screens.dialogs import ConfirmScreen, InspectionScreen, LaunchScreen, NameScreen
from tuner_tui.ui.screens.pickers import PickScreen, QueueScreen, RunsScreen, queue_items, run_table
from tuner_tui.ui.start_gpus import GpuChoice
from tuner_tui.ui.state_store import Requests, StateStore, estimate_request
from tuner_tui.ui.status_text import launch_rows, live_elsewhere, next_stop_question, recent_text
from tuner_tui.ui.terminal.base_app import BaseApp
from tuner_tui.view.cells import Line
from tuner_tui.view.end_card import checkpoint_path, end_scene
from tuner_tui.view.finding_rows import replay_rows
from tuner_tui.view.settings_form import effective_batch

COMPARE_PERIOD_S = 5.0
RECENT_PERIOD_S = 3.0
QUESTION_PERIOD_S = 0.5
T = TypeVar("T")


def _measured(view: RunView) -> tuple[object, ...]:
    """What changes when a run has measured something that the estimate of the next one rests on."""
    state = view.state
    return state.total_steps, state.position and state.position[1], (state.step or 0).bit_length()


class RunRequests(Requests):
    """Serves requests about runs. `show_run` gets the folder of each run that is followed from then on.

    `load` shows other settings, with their job, by what they are called.
    """

    def __init__(
        self,
        app: BaseApp,
        store: StateStore,
        backend: Backend,
        show_run: Callable[[Path | None], None],
        load: Callable[[TrainingConfig, str], None],
    ) -> None:
        super().__init__(app, store, backend)
        self._show_run = show_run
        self._load = load
        self._unseen: dict[tuple[str, Path | None], InspectionScreen] = {}
        """What was ready while the user did something else, by its title and the run."""
        self._queued: set[Path] = set()
        """The runs queued here, which are followed in turn until the user opens another run."""

    def _refuse(self, refusal: str) -> None:
        """Say why a request is not served: the run that it is about is still being read, or the `refusal`."""
        folder, view = self._state.folder, self._state.view
        if folder is not None and view is None:
            refusal = f"{folder.name} is still being read; try again in a moment."
        self._app.show_note(refusal, severity="warning")

    # following

    def follow(self, folder: Path | None) -> None:
        self._adopt(folder)
        self._show_run(folder)
        self._store.update(replace(self._state, folder=folder, view=None, findings=None, context=None))

    def _adopt(self, folder: Path | None) -> None:
        if folder is not None:
            self._app.run_task(to_daemon_thread, lambda: self._backend.adopt_run(folder))

    async def open(self, folder: Path) -> None:
        """Follow the run in `folder`, and show its job and settings: they are what `t` trains again."""
        self._queued.clear()
        shown = self._state.current
        config = await to_daemon_thread(lambda: self._backend.open_run(folder, shown))
        self.follow(folder)
        if shown is None or (config.job, config.resolved.settings) != (shown.job, shown.resolved.settings):
            self._load(config, f"the settings of {folder.name}")

    def show_view(self, view: RunView) -> None:
        before = self._state.view
        just_ended = before is not None and before.status.live and view.status.kind == "ended"
        if just_ended:
            self._app.notify_desktop(view.status.sentence)
        if before is not None and before.status.kind != view.status.kind == "lost":  # its supervisor has just died
            self._adopt(self._state.folder)
        self._store.update(replace(self._state, view=view))
        if before is None or just_ended or _measured(before) != _measured(view):
            self._store.request_estimate()  # the run has measured speed, memory or its data
        if before is not None:
            self._report_fallback(before.state, view.state)

    def _report_fallback(self, before: RunState, now: RunState) -> None:
        """Say what the automatic fallback has just done, and follow the run that continues this one."""
        if now.fallback_ended is not None and before.fallback_ended is None:
            self._app.show_note(now.fallback_ended.sentence, severity="error")
        if now.fell_back is None or before.fell_back is not None or self._state.folder is None:
            return
        note = f"Retry {now.fell_back.number} of {now.fell_back.most} after out of memory. {now.fell_back.sentence}"
        self._app.show_note(note, "warning")
        self.follow(self._state.folder.with_name(now.fell_back.into))

    async def watch_recent(self) -> None:
        """Show the newest runs: others may train here."""
        await self._store.ready.wait()
        await poll(self._backend.watch_recent(), self._show_recent, period_s=RECENT_PERIOD_S)

    def _show_recent(self, runs: tuple[RunRow, ...]) -> None:
        """Show what else trains here, and a run that was queued here once it has started, if no other one goes on."""
        self._store.update(replace(self._state, recent=runs))
        live = next((Path(run.path) for run in runs if run.pid is not None and Path(run.path) in self._queued), None)
        if live is not None and not self._state.running and not self._app.is_in_use:
            self._queued.discard(live)
            self.follow(live)

    async def action_runs(self) -> None:
        runs = await to_daemon_thread(self._backend.list_runs)
        picked = await self._app.ask(RunsScreen(runs, self._app.size.width))
        if picked is None or picked.folder is None:
            return
        if picked.order == "open":
            await self.open(picked.folder)
        elif picked.order == "resume":
            await self._restart(picked.folder, None)
        elif self._state.folder in (None, picked.folder):
            await self.action_compare(picked.folder)
        else:
            await self.action_compare(self._state.folder, picked.folder)

    # starting

    async def action_train(self) -> None:
        """Launch a run with the settings shown, after a look at what it will do."""
        refusal = self._store.launch_refusal() if self._store.ready.is_set() else ""
        shortage = "" if refusal or await self._concurrent_tuning() else await self._shortage()
        if shortage or (refusal and self._state.running and not self._store.launch_refusal(True)):
            await self._enqueue(shortage or refusal)
        elif refusal:
            self._app.show_note(refusal, severity="warning")
        elif (folder := await self._start("Train", partial(self._prepare, self._backend.offer_launch))) is not None:
            self.follow(folder)

    async def _shortage(self) -> str:
        """Return why the settings shown would wait for other runs; empty if they would not, or are not read yet."""
        current, inventory, interpreter = self._state.current, self._state.inventory, self._state.interpreter
        if current is None or inventory is None or interpreter is None:
            return ""
        sample = self._store.sample
        return await to_daemon_thread(lambda: self._backend.shortage(current, inventory, interpreter, sample))

    async def _start(self, heading: str, prepare: Callable[..., Coroutine[Any, Any, LaunchOffer]]) -> Path | None:
        """Show what a launch will do, as soon as it is prepared; start it and return its folder if the user agrees.

        `prepare` gets the number of GPUs once one is chosen; the job that starts a process for each is shown then.
        """
        offer: LaunchOffer | None = None

        async def fill(*gpus: int) -> None:
            nonlocal offer
            offer = await prepare(*gpus)
            screen.tell(offer.sentence, offer.lines, offer.most_gpus, offer.heading or heading)

        screen = LaunchScreen(heading, lambda gpus: self._app.serve(fill, gpus))
        if not await self._app.ask(screen, fill) or offer is None:
            return None
        self._app.show_note("Queueing …" if heading == "Queue" else "Starting …")
        folder, loaded = await to_daemon_thread(offer.start), self._state.loaded
        if offer.job is not None and loaded is not None and loaded.job != offer.job:
            state = replace(self._state, loaded=replace(loaded, job=offer.job))
            self._store.update(state.with_changes(offer.change, Origin(OriginKind.EDITED)))
        return folder

    async def _prepare(
        self, make_offer: Callable[[TrainingConfig], LaunchOffer], gpus: int | None = None, *, queued: bool = False
    ) -> LaunchOffer:
        """Return the launch of the settings shown, as soon as they are final, on that number of GPUs."""
        if not self._store.ready.is_set():
            self._app.let_input_through()  # to the dialog, which can be left
            await self._store.ready.wait()
        choice = GpuChoice(self._state) if queued else self._store.choose_gpus(gpus)
        state, outlook, refusal = choice.state, self._store.outlook, self._store.launch_refusal(queued)
        current, request = state.current, estimate_request(state)
        if current is None or refusal:
            raise BackendError(refusal)
        offer = await to_daemon_thread(lambda: make_offer(current))
        if request is not None and state is not self._state:
            outlook = await to_daemon_thread(lambda: self._backend.estimates.quick(request))
        sentence, expected = launch_rows(current, outlook, state.batch_note, state.failure)
        meanwhile, view = await self._concurrent_tuning(), self._store.settings_view(state)
        problems = [] if view is None else [("Problem", problem.sentence) for problem in view.problems]
        if outlook is not None and outlook.estimate is not None and outlook.estimate.verdict == "too large":
            problems.append(("Problem", "The estimated peak is more than the free memory."))
        batch = "" if view is None else effective_batch(view, self._app.size.width)
        batch = ", ".join(filter(None, (batch.removeprefix("effective ").removeprefix("batch "), choice.batch)))
        env = [f"{name}={value}" for name, value in current.job.env.items() if name in OF_RUNTIME]
        live = None if queued or meanwhile else live_elsewhere(self._state)
        meanwhile = meanwhile if live is None else f"{recent_text(live)}; both may be slower."
        more = ("GPUs", choice.taken), ("Effective batch", batch), ("With", ", ".join(env)), ("Meanwhile", meanwhile)
        lines = [*problems, *expected, *offer.lines, *(pair for pair in more if pair[1])]
        return LaunchOffer(sentence, lines, offer.start, choice.most, current.job, change=choice.change)

    async def _concurrent_tuning(self) -> str:
        """Return what a training does to the tuning that runs; empty without one."""
        listed = await to_daemon_thread(self._backend.tunings.list_newest)
        running = next((view.id for view in listed.values() if view.status == "running"), None)
        return f"{running} is tuning: a second run takes memory and distorts its measurements." if running else ""

    async def action_restart(self) -> None:
        if self._state.folder is None:
            self._refuse("No run is open.")
            return
        await self._restart(self._state.folder, self._state.current)

    async def _restart(self, folder: Path, config: TrainingConfig | None) -> None:
        """Restart a run with the settings of `config`, or its own, after a look at what it will do."""
        offer = partial(to_daemon_thread, lambda: self._backend.offer_restart(folder, config))
        continued = await self._start("Resume", offer)
        if continued is not None:
            await self.open(continued)

    async def retry(self, finding: Finding, remedy: Remedy) -> None:
        """Start the followed run, which has ended, again with `remedy`: from its last checkpoint if it has one."""
        folder, view, current = self._state.folder, self._state.view, self._state.current
        if folder is None or view is None:
            return
        meanwhile = await self._concurrent_tuning()
        if not meanwhile and await self._shortage():
            live = live_elsewhere(self._state)
            name = "Another run" if live is None else live.run
            meanwhile = f"{name} trains now and has the hardware that this run needs."
        if meanwhile and not await self._app.ask(ConfirmScreen("Train", f"{meanwhile} Train anyway?", "train")):
            return
        self._app.show_note(f"{remedy.title}: starting again …")
        offer = await to_daemon_thread(lambda: self._backend.offer_retry(folder, remedy, finding.cause, current))
        effect = f" {remedy.batch_note[:1].upper()}{remedy.batch_note[1:]}." if remedy.batch_note else ""
        self._app.show_note(f"{offer.sentence}{effect}")
        started = await to_daemon_thread(offer.start)
        if current is not None and view.record is not None and current.job == view.record.job:
            self.follow(started)
            self._store.update(self._state.with_remedy(finding, remedy))
        else:
            await self.open(started)

    # what a run leaves

    async def action_share(self) -> None:
        """Write the report of the followed run, which has ended, to a file that the user names."""
        folder, view, findings = self._state.folder, self._state.view, self._state.findings
        if folder is None or view is None or findings is None or view.state.finished is None:
            self._refuse("There is a report once a run has ended.")
            return
        scene = end_scene(folder.name, view, self._state.context, findings)
        about = f"A file in {Path.cwd()}: .md is Markdown, .svg a picture, .html a web page"
        names = (f"{folder.name}{ending}.html" for ending in ("", *(f"-{number}" for number in range(2, 100))))
        free = next((name for name in names if not Path(name).exists()), "")
        name = await self._app.ask(NameScreen("Share", free, report_problem, about))
        if name is not None:
            path = await to_daemon_thread(lambda: self._backend.write_report(scene, name))
            copied = self._app.copy_text(render_report(scene, ".md"))
            self._app.show_note(f"Written to {path}." + (" Its Markdown is on the clipboard." if copied else ""))

    async def action_copy_path(self) -> None:
        """Put the path of the newest checkpoint of the followed run on the clipboard, else that of its folder."""
        folder, view = self._state.folder, self._state.view
        if folder is None or view is None:
            self._refuse("No run is open.")
            return
        path = checkpoint_path(end_scene(folder.name, view, self._state.context, ())) or str(folder)
        copied = self._app.copy_text(path)
        self._app.show_note(f"Copied {path}" if copied else path)

    # stopping

    async def action_stop(self) -> None:
        """Stop the followed run: each further request is stronger, and each asks first."""
        question = next_stop_question(self._state)
        if question is None or self._state.folder is None:
            self._refuse("Nothing to stop: no training is running.")
            return
        folder, (order, heading, text) = self._state.folder, question
        screen = ConfirmScreen(heading, text, order)
        if await self._ask_while(screen, self._renew_question, screen, order):
            await to_daemon_thread(lambda: self._backend.send_order(folder, order))

    async def _renew_question(self, screen: ConfirmScreen, order: Order) -> None:
        """Say what stopping the followed run costs by now; close the question once `order` is no longer the next."""
        while (question := next_stop_question(self._state)) is not None and question[0] == order:
            screen.question = question[2]
            await asyncio.sleep(QUESTION_PERIOD_S)
        screen.dismiss(False)
        self._app.show_note("The run has ended meanwhile." if question is None else "It was asked to stop already.")

    async def action_checkpoint(self) -> None:
        folder = self._state.folder
        if folder is None or not self._state.running:
            self._refuse("Nothing to save: no training is running.")
            return
        reason = None if self._state.view is None else checkpoint_refusal(self._state.view.state)
        if reason is not None:
            self._app.show_note(reason, severity="warning")
            return
        await to_daemon_thread(lambda: self._backend.send_order(folder, "checkpoint"))
        self._app.show_note("A checkpoint is saved after this step.")

    async def action_stacks(self) -> None:
        from tuner_tui.view.stack_rows import stack_rows  # asked rarely

        await self._inspect("Stacks of {}", self._backend.inspect_run, stack_rows, "Reading the stacks of", "W")

    async def action_profile(self) -> None:
        from tuner_tui.view.profile_rows import profile_rows  # asked rarely

        if self._state.running and self._state.view is not None and self._state.view.state.step is None:
            self._refuse("No step has finished yet; W shows what the processes are doing.")
            return
        await self._inspect("Profile of {}", self._backend.profile_run, profile_rows, "Profiling", "F")

    async def action_replay(self) -> None:
        """Train the steps before a loss that is not finite again, and show where it comes from."""
        await self._inspect("Replay of {}", self._backend.replay_run, replay_rows, "Replaying", "P", live=False)

    async def _inspect(
        self,
        title: str,
        read: Callable[[Path], T],
        draw: Callable[[T, int], Sequence[Line]],
        doing: str,
        key: str,
        live: bool = True,
    ) -> None:
        """Show what is read of the followed run, which has to be `live`.

        The status line says what it is `doing`. What is ready late, or while the user is elsewhere, opens with `key`.
        """
        folder, asked_s = self._state.folder, time.monotonic()
        screen = self._unseen.pop((title, folder), None)
        if folder is None or (screen is None and live and not self._state.running):
            self._refuse("No training is running.")
            return
        if screen is None:
            self._app.let_input_through()
            self._store.update(replace(self._state, request=f"{doing} {folder.name} …"))
            try:
                result = await to_daemon_thread(lambda: read(folder))
            finally:
                self._store.update(replace(self._state, request=""))
            screen = InspectionScreen(title.format(folder.name), partial(draw, result))
            is_late = time.monotonic() - asked_s > self._app.answer_limit_s
            if is_late or self._app.is_in_use or folder != self._state.folder:
                self._unseen[title, folder] = screen
                self._app.show_note(f"{screen.heading} is ready: {key} shows it while {folder.name} is open.")
                return
        await self._app.ask(screen)

    # queue

    async def action_queue(self) -> None:
        """List the waiting runs until the user shows one or leaves; on the way runs are removed and added."""
        await to_daemon_thread(self._backend.wake_queue)
        while True:
            lines = await to_daemon_thread(self._backend.list_queue)
            picked = await self._app.ask(QueueScreen(queue_items(lines, time.time())))
            if picked is None:
                return
            if picked.order == "add":
                await self._enqueue()
            elif picked.folder is not None and picked.order == "remove":
                question = f"{picked.folder.name} leaves the queue and never starts. Remove it?"
                if await self._app.ask(ConfirmScreen("Remove", question, "remove")):
                    await to_daemon_thread(partial(self._backend.send_order, picked.folder, "stop"))
            elif picked.folder is not None:
                await self.open(picked.folder)
                return

    async def _enqueue(self, refusal: str = "") -> None:
        """Queue the training with the settings shown, after a look at it; `refusal`: why it cannot start at once."""
        if refusal:
            self._app.show_note(f"{refusal} This one can wait in the queue until its hardware is free.")
        state = self._state
        make_offer = partial(self._backend.offer_queueing, inventory=state.inventory, interpreter=state.interpreter)
        folder = await self._start("Queue", partial(self._prepare, make_offer, queued=True))
        if folder is not None:
            self._queued.add(folder)
            self._app.show_note(f"Queued as {folder.name}.")

    # comparison

    async def action_compare(self, first: Path | None = None, second: Path | None = None) -> None:
        """Compare the run `first`, or the one followed, with `second` on a screen; ask for those that are not given."""
        from tuner_tui.ui.screens.compare import CompareScreen  # opened rarely

        first = first or self._state.folder or await self._pick("Compare", None)
        second = second or (first and await self._pick(f"Compare {first.name} with", first))
        if first is None or second is None:
            return
        screen = CompareScreen((first.name, second.name))
        compared = self._backend.compare_runs(first, second)
        await self._ask_while(screen, poll, compared, screen.show, UNREADABLE, COMPARE_PERIOD_S)

    async def _pick(self, heading: str, excluded: Path | None) -> Path | None:
        listed = await to_daemon_thread(self._backend.list_runs)
        runs = [run for run in listed if Path(run.path) != excluded]
        followed = next((run for run in listed if Path(run.path) == excluded), None)
        if followed is not None:  # its parent first, then what has trained the same, then the most similar command

            def difference(run: RunRow) -> tuple[bool | int, ...]:
                shared = len({*run.command} & {*followed.command})
                is_trial = run.tuning is not None
                return run.run != followed.parent, run.title != followed.title, -shared, is_trial, not run.step

            runs.sort(key=difference)
        empty = "There is no other run to compare with." if excluded else "No runs yet; t starts one."
        columns, items = run_table(runs, self._app.size.width)
        return await self._app.ask(PickScreen(heading, items, empty, columns=columns))
