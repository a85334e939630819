"""Tuning on the screen: starting one after a yes, looking at one, ending it, and taking its winner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner_tui.ui import run_words as words
from tuner_tui.ui import state as steps
from tuner_tui.ui.compare_app import CompareApp
from tuner_tui.ui.drawing.tuning_words import can_go_on
from tuner_tui.ui.looking import LookFeed
from tuner_tui.ui.messages import TuningArrived
from tuner_tui.ui.screens.confirm import ConfirmScreen
from tuner_tui.ui.screens.diff import DiffScreen
from tuner_tui.ui.screens.pick import Item, PickScreen
from tuner_tui.ui.threads import off_loop

if TYPE_CHECKING:
    from pathlib import Path

    from tuner_tui.ui import messages as m
    from tuner_tui.ui.screens.tune import TuneScreen
    from tuner_tui.ui.tuning_services import TuningLook

ABORT = "End {name}? The trial under way is stopped; what was measured is kept, and R goes on with it."


class TuneApp(CompareApp):
    """Shows tunings, one at a time. They go on without the screen."""

    _tune_screen: TuneScreen | None = None
    _tuning_feed: LookFeed[TuningLook] | None = None
    _tuning: Path | None = None

    def on_tune_wanted(self) -> None:
        self.errand(self._open_tune())

    async def _open_tune(self) -> None:
        """The newest tuning; where there is none, one is offered."""
        lines = await off_loop(self.services.tuning.all)
        folder = lines[0].folder if lines else await self._begin_tuning()
        if folder is not None and self._tune_screen is None:
            await self._show_tuning(folder)

    async def _show_tuning(self, folder: Path) -> None:
        from tuner_tui.ui.screens.tune import TuneScreen

        self._tune_screen = TuneScreen()
        self._follow_tuning(folder)
        try:
            await self.push_screen_wait(self._tune_screen)
        finally:
            if self._tuning_feed is not None:
                self._tuning_feed.stop()
            self._tune_screen = self._tuning_feed = self._tuning = None

    def _follow_tuning(self, folder: Path) -> None:
        if self._tuning_feed is not None:
            self._tuning_feed.stop()
        if self._tune_screen is not None:
            self._tune_screen.looked = None
        self._tuning = folder
        tuning = self.services.tuning
        self._tuning_feed = LookFeed(
            lambda: tuning.follow(folder).look,
            lambda look: self.post_message(TuningArrived(folder, look)),
            self.post_message,
            over=lambda look: look.now_s is None,
        )
        self._tuning_feed.start()

    def on_tuning_arrived(self, news: m.TuningArrived) -> None:
        screen = self._tune_screen
        if screen is None or news.folder != self._tuning:
            return
        before, now = screen.looked, news.look
        if before is not None and before.view.status == "running" and now.view.status != "running":
            self.ring(f"{now.view.id} · {now.view.title}: {now.view.status}.")
        screen.looked = now

    def on_tuning_wanted(self, wanted: m.TuningWanted) -> None:
        what = {
            "start": self._another_tuning, "abort": self._abort_tuning, "resume": self._resume_tuning,
            "pick": self._pick_tuning, "apply": self._take_winner,
        }[wanted.what]  # fmt: skip
        self.errand(what())

    async def _another_tuning(self) -> None:
        look = None if self._tune_screen is None else self._tune_screen.looked
        if look is not None and look.view.status == "running":
            self.say(f"{look.view.id} is under way; x ends it.", severity="warning")
            return
        folder = await self._begin_tuning()
        if folder is not None:
            self._follow_tuning(folder)

    async def _begin_tuning(self) -> Path | None:
        """Start one after a yes; None where it is refused or not wanted."""
        from tuner_tui.ui.screens.launch import LaunchScreen

        await self._known.wait()
        current, refusal = self.state.current, words.refusal(self.state, self.main.settings_view)
        if current is None or refusal:
            self.say(refusal, severity="warning")
            return None
        lines = await off_loop(lambda: self.services.tuning.plan(current))
        if not await self.push_screen_wait(LaunchScreen(lines, "Tune")):
            return None
        return await off_loop(lambda: self.services.tuning.start(current))

    async def _abort_tuning(self) -> None:
        folder = self._tuning
        question = ABORT.format(name="" if folder is None else folder.name)
        if folder is not None and await self.push_screen_wait(ConfirmScreen("End the tuning", question, "end it")):
            await off_loop(lambda: self.services.tuning.abort(folder))
            self.say(f"{folder.name} ends as soon as its trial is stopped.")

    async def _resume_tuning(self) -> None:
        folder = self._tuning
        look = None if self._tune_screen is None else self._tune_screen.looked
        if look is not None and not can_go_on(look.view):
            self.say(f"{look.view.id} is {look.view.status}: there is nothing to go on with.", severity="warning")
        elif folder is not None:
            current = self.state.current
            await off_loop(lambda: self.services.tuning.resume(folder, current))
            self._follow_tuning(folder)

    async def _pick_tuning(self) -> None:
        lines = await off_loop(self.services.tuning.all)
        items = [Item(one.id, f"{one.status:<9} {one.title}".rstrip(), one.folder) for one in lines]
        folder = await self.push_screen_wait(PickScreen("Tunings", items, "No tuning was started yet."))
        if folder is not None:
            self._follow_tuning(folder)

    async def _take_winner(self) -> None:
        """Put the winner into the settings, after its changes were shown."""
        look = None if self._tune_screen is None else self._tune_screen.looked
        folder, current = self._tuning, self.state.current
        if look is None or look.view.verdict is None or folder is None or current is None:
            self.say("There is no winner yet.", severity="warning")
            return
        remedy = steps.winner_of(self.state, look.view.id, look.view.verdict)
        changes = steps.changes_of(self.state, remedy)
        same = await off_loop(lambda: self.services.tuning.tunes(folder, current))
        when = "for the next run" if same else f"for another training than that tuned: {look.view.title}"
        if await self.push_screen_wait(DiffScreen(remedy, changes, when)):
            self._show(steps.tuned(self.state, look.view.id, remedy))
            self.say("The winner's settings are those of the next run. u takes them back.")
