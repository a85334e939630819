"""Starts, shows, aborts and resumes tunings, and applies their winner."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from tuner_tui.core.daemon_thread import to_daemon_thread
from tuner_tui.settings.model import Origin, OriginKind
from tuner_tui.tuning.trial import DEFAULT_MINUTES
from tuner_tui.tuning.trial_log import TuningView
from tuner_tui.ui.feeds import poll
from tuner_tui.ui.records import TrialPlacement, TuningPlan, TuningSnapshot, TuningWish
from tuner_tui.ui.screens.dialogs import ConfirmScreen, DiffScreen
from tuner_tui.ui.screens.pickers import PickerItem, PickScreen
from tuner_tui.ui.screens.tune import TuneScreen, TuneStartScreen
from tuner_tui.ui.state_store import Requests
from tuner_tui.ui.status_text import estimated_peak
from tuner_tui.view.tuning_rows import applicable_winner, can_resume

STATUS_PERIOD_S = 3.0
TASK = "tuning"
"""Name of the task that reads the tuning shown."""
ABORT_QUESTION = "Stop {name}? Its finished trials are kept, the running one is not; R resumes it."


class TuningRequests(Requests):
    """Shows tunings, one at a time. They run detached and go on without the screen."""

    _screen: TuneScreen | None = None
    _folder: Path | None = None
    _minutes: float | None = None
    _placement: TrialPlacement = "sequential"

    async def watch_status(self) -> None:
        """Show whether a tuning runs on this machine, once everything needed to start one is read."""
        await self._store.ready.wait()
        await poll(self._backend.tunings.watch_running(), self.show_status, period_s=STATUS_PERIOD_S)

    def show_status(self, view: TuningView | None) -> None:
        """Show on the main screen that a tuning runs, or has ended and was not looked at since."""
        before = self._state.tuning
        # A tuning that ended before the screen was opened is no news, and neither is one that is on the screen. One
        # that was seen running is announced once, and its sign stays in the footer until it is looked at.
        if view is not None and view.status != "running":
            if before is None or self._screen is not None:
                view = None
            elif before.status == "running":
                sentence = _end_sentence(view)
                self._app.notify_desktop(sentence)
                self._app.show_note(f"{sentence} o shows it.")
        self._store.update(replace(self._state, tuning=view))

    async def action_tune(self) -> None:
        """Show the tuning that runs or has just ended, the newest if it is of this training, else offer one."""
        listed = await to_daemon_thread(self._backend.tunings.list_newest)
        current, news = self._state.current, "" if self._state.tuning is None else self._state.tuning.id
        folder = next((folder for folder, view in listed.items() if view.status == "running" or view.id == news), None)
        newest = next(iter(listed), None)
        if folder is None and newest is not None and current is not None:
            same = await to_daemon_thread(lambda: self._backend.tunings.is_same_job(newest, current))
            folder = newest if same else None
        folder = folder or await self._start()
        if folder is not None and self._screen is None:
            await self.show(folder)

    async def show(self, folder: Path) -> None:
        self._screen = TuneScreen()
        if self._state.tuning is not None and self._state.tuning.status != "running":
            self._store.update(replace(self._state, tuning=None))
        self._follow(folder)
        try:
            await self._app.ask(self._screen)
        finally:
            self._screen = self._folder = None
            self._app.workers.cancel_group(self._app, TASK)

    def _follow(self, folder: Path) -> None:
        if self._screen is not None:
            self._screen.snapshot = None
        self._folder = folder
        self._app.run_task(poll, self._backend.tunings.follow(folder), self.show_snapshot, only=TASK)

    def show_snapshot(self, snapshot: TuningSnapshot) -> None:
        if self._screen is None:
            return
        before = self._screen.snapshot
        if before is not None and before.view.status == "running" and snapshot.view.status != "running":
            self._app.notify_desktop(_end_sentence(snapshot.view))
        self._screen.snapshot = snapshot

    @property
    def _snapshot(self) -> TuningSnapshot | None:
        return None if self._screen is None else self._screen.snapshot

    # what the tune screen asks for

    async def action_start_tuning(self) -> None:
        snapshot = self._snapshot
        if snapshot is not None and snapshot.view.status == "running":
            self._app.show_note(f"{snapshot.view.id} is running; x stops it.", severity="warning")
            return
        tuned, current, heading = self._folder, self._state.current, "Tune"
        if tuned is not None and current is not None and snapshot is not None:
            same = await to_daemon_thread(lambda: self._backend.tunings.is_same_job(tuned, current))
            heading = heading if same else f"Tune the settings shown, not {snapshot.view.title}"
        folder = await self._start(heading)
        if folder is not None:
            self._follow(folder)

    async def _start(self, heading: str = "Tune") -> Path | None:
        """Start a tuning after a confirmation and return its folder; None if it is refused or not wanted."""
        if not self._store.ready.is_set():
            self._app.let_input_through()
            await self._store.ready.wait()
        current, refusal = self._state.current, self._store.launch_refusal()
        if current is None or refusal:
            self._app.show_note(refusal, severity="warning")
            return None
        inventory, interpreter, sample = self._state.inventory, self._state.interpreter, self._store.sample
        plan = await to_daemon_thread(lambda: self._backend.tunings.plan(current, inventory, interpreter, sample))
        outlook = self._store.outlook
        if outlook is not None and outlook.estimate is not None and outlook.estimate.verdict in ("tight", "too large"):
            plan = plan._replace(lines=[("Problem", f"By the estimate {estimated_peak(outlook)}."), *plan.lines])
        wish = await self._ask(heading, plan)
        if wish is None:
            return None
        self._placement = wish.placement
        wish = wish._replace(gpus=plan.gpus if wish.placement == "gpus" else ())
        return await to_daemon_thread(lambda: self._backend.tunings.start(current, wish))

    async def _ask(self, heading: str, plan: TuningPlan) -> TuningWish | None:
        """Return how to tune, or None if it is not wanted. The last answer is the default."""
        minutes = max(self._minutes or DEFAULT_MINUTES, plan.least_minutes or 0.0)
        default = TuningWish(minutes, self._placement)
        wish = await self._app.ask(TuneStartScreen(plan, default, heading))
        self._minutes = self._minutes if wish is None else wish.minutes
        return wish

    async def action_abort_tuning(self) -> None:
        folder = self._folder
        if folder is None:
            return
        question = ABORT_QUESTION.format(name=folder.name)
        if await self._app.ask(ConfirmScreen("Stop the tuning", question, "stop it")):
            await to_daemon_thread(lambda: self._backend.tunings.abort(folder))
            self._app.show_note(f"{folder.name} stops as soon as its trial has ended.")

    async def action_resume_tuning(self) -> None:
        folder, snapshot = self._folder, self._snapshot
        if snapshot is not None and not can_resume(snapshot.view):
            view = snapshot.view
            self._app.show_note(f"{view.id} is {view.status}: there is nothing to resume.", severity="warning")
        elif folder is not None:
            verdict = None if snapshot is None else snapshot.view.verdict
            again = "on a quiet machine those of the busy one are measured again"
            repeated = again if verdict is not None and verdict.disturbed else "none is repeated"
            lines = [("Keeps", f"all measured trials; {repeated}")]
            least = None if snapshot is None else snapshot.view.needed_minutes
            if snapshot is not None and snapshot.view.trouble:
                lines.insert(0, ("Problem", snapshot.view.trouble))
            wish = await self._ask(f"Resume {folder.name}", TuningPlan(lines, least))
            if wish is not None:
                current = self._state.current
                await to_daemon_thread(lambda: self._backend.tunings.resume(folder, current, wish.minutes))
                self._follow(folder)

    async def action_pick_tuning(self) -> None:
        listed = await to_daemon_thread(self._backend.tunings.list_newest)
        about = {folder: f"{view.status:<9} {view.title}".rstrip() for folder, view in listed.items()}
        items = [PickerItem(view.id, about[folder], folder) for folder, view in listed.items()]
        folder = await self._app.ask(PickScreen("Tunings", items, "No tunings yet."))
        if folder is not None:
            self._follow(folder)

    async def action_apply_winner(self) -> None:
        """Put the winner into the settings, after its changes were shown."""
        folder, snapshot, current = self._folder, self._snapshot, self._state.current
        winner = None if snapshot is None else applicable_winner(snapshot.view)
        if snapshot is None or winner is None or folder is None or current is None:
            self._app.show_note("No faster settings were measured.", severity="warning")
            return
        view = snapshot.view
        remedy = self._state.winner_as_remedy(view.id, winner)
        changes = self._state.changes_by(remedy)
        same = await to_daemon_thread(lambda: self._backend.tunings.is_same_job(folder, current))
        when = "to the next run" if same else f"to a different training than the one tuned: {view.title}"
        if await self._app.ask(DiffScreen(remedy, changes, when)):
            self._store.update(self._state.with_changes(remedy.change, Origin(OriginKind.TUNED, view.id)))
            self._app.show_note("The next run uses the winner's settings. u undoes it.")


def _end_sentence(view: TuningView) -> str:
    return f"{view.id} · {view.title}: {view.status}."
