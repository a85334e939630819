"""The app: does what the screen asks for through the services. Below it `settings_app` and `state_app`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner_tui.ui.backend.daemon_thread import to_daemon_thread
from tuner_tui.ui.controllers.tuning import TuneApp
from tuner_tui.ui.screen_state import status_text as words
from tuner_tui.ui.screen_state import ui_state as steps
from tuner_tui.ui.screens.dialogs import ConfirmScreen, LaunchScreen
from tuner_tui.ui.screens.pickers import RunsScreen

if TYPE_CHECKING:
    from tuner_tui.ui import messages as m
    from tuner_tui.ui.backend.interface import TrainingConfig


class TunerApp(TuneApp):
    """One screen over one state: settings and presets below, here the runs, their output, and the program itself."""

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
        current, refusal = self.state.current, words.launch_refusal(self.state, self.main.settings_view)
        if current is None or refusal:
            self.say(refusal, severity="warning")
            return
        if not await self._alone() or not await self._agreed(current):
            return
        self.say("Starting the training.")
        self._follow(await to_daemon_thread(lambda: self.services.launch(current)))

    async def _alone(self) -> bool:
        """Whether no tuning is under way, or somebody wants to train beside it all the same."""
        lines = await to_daemon_thread(self.services.tuning.all)
        tuning = next((one.id for one in lines if one.status == "running"), None)
        if tuning is None:
            return True
        question = f"{tuning} is tuning: a training beside it takes its memory and spoils its figures. Train anyway?"
        return await self.push_screen_wait(ConfirmScreen("Train", question, "train")) is True

    async def _agreed(self, current: TrainingConfig) -> bool:
        """Another's command is shown as it will run, with what it will not get; the built-in job is known."""
        if current.job.kind == "builtin":
            return True
        lines = await to_daemon_thread(lambda: self.services.preview(current))
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
                self.errand(self._ask_interpreter(job))

    def on_restart_wanted(self) -> None:
        self.errand(self._restart())

    async def _restart(self) -> None:
        folder, current = self.state.folder, self.state.current
        if folder is None or self._launching:
            self.say("No run is followed.", severity="warning")
            return
        self._launching = True
        try:
            offer = await to_daemon_thread(lambda: self.services.restart(folder, current))
            if await self.push_screen_wait(ConfirmScreen("Restart", offer.question, "restart")):
                self.say(f"Restarting {folder.name}: it ends first.")
                self._follow(await to_daemon_thread(offer.go))
        finally:
            self._launching = False

    def on_stop_wanted(self) -> None:
        self.errand(self._stop())

    async def _stop(self) -> None:
        rung = words.next_stop_question(self.state)
        if rung is None or self.state.folder is None:
            self.say("No training of this screen runs.", severity="warning")
            return
        folder = self.state.folder
        if await self.push_screen_wait(ConfirmScreen(rung.heading, rung.question, rung.order)):
            await to_daemon_thread(lambda: self.services.order(folder, rung.order))

    def on_checkpoint_wanted(self) -> None:
        self.errand(self._checkpoint())

    async def _checkpoint(self) -> None:
        folder = self.state.folder
        if folder is None or not self.state.running:
            self.say("No training of this screen runs.", severity="warning")
            return
        from tuner_tui.runs.events.run_state import checkpoint_refusal

        why = None if self.state.view is None else checkpoint_refusal(self.state.view.state)
        if why is not None:
            self.say(why, severity="warning")
            return
        await to_daemon_thread(lambda: self.services.order(folder, "checkpoint"))
        self.say("Asked for a checkpoint; it is saved after this step.")

    def on_runs_wanted(self) -> None:
        self.errand(self._pick_run())

    async def _pick_run(self) -> None:
        items = words.run_items(await to_daemon_thread(self.services.runs))
        picked = await self.push_screen_wait(RunsScreen(items))
        if picked is None:
            return
        if not picked.compare:
            self._follow(picked.folder)
        elif self.state.folder in (None, picked.folder):
            await self.compare(picked.folder)
        else:
            await self.compare(self.state.folder, picked.folder)

    # log

    def on_log_window_wanted(self, wanted: m.LogWindowWanted) -> None:
        self._follower.ask(wanted)

    def on_log_search_wanted(self, wanted: m.LogSearchWanted) -> None:
        self._follower.ask(wanted)

    # the program

    def on_theme_wanted(self) -> None:
        self.change_theme()

    def on_quit_wanted(self) -> None:
        self.exit(message=words.exit_message(self.state))
