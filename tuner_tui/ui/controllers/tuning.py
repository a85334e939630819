"""Starts, shows, aborts and resumes tunings, and applies their winner."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tuner_tui.ui.backend.daemon_thread import to_daemon_thread
from tuner_tui.ui.backend.feeds import PollingFeed
from tuner_tui.ui.controllers.comparison import CompareApp
from tuner_tui.ui.drawing.tuning_text import can_resume
from tuner_tui.ui.messages import TuningArrived, TuningSeen
from tuner_tui.ui.screen_state import status_text as words
from tuner_tui.ui.screen_state import ui_state as steps
from tuner_tui.ui.screens.dialogs import ConfirmScreen
from tuner_tui.ui.screens.pickers import PickerItem, PickScreen
from tuner_tui.ui.screens.remedy import DiffScreen

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tuner_tui.tuning.process.tuning_reader import TuningView
    from tuner_tui.ui import messages as m
    from tuner_tui.ui.backend.interface import TuningSnapshot
    from tuner_tui.ui.screens.tune import TuneScreen

TUNING_POLL_S = 3.0
"""How often somebody looks whether a tuning is under way."""
ABORT_QUESTION = "End {name}? The trial under way is stopped; what was measured is kept, and R goes on with it."


class TuneApp(CompareApp):
    """Shows tunings, one at a time. They go on without the screen."""

    _tune_screen: TuneScreen | None = None
    _tuning_feed: PollingFeed[TuningSnapshot] | None = None
    _tuning: Path | None = None
    _sign_feed: PollingFeed[TuningView | None] | None = None
    _minutes: float | None = None

    def on_mount(self) -> None:
        self.errand(self._watch_tunings())

    def on_unmount(self) -> None:
        if self._sign_feed is not None:
            self._sign_feed.stop()

    async def _watch_tunings(self) -> None:
        """From when all that is needed to begin one is there: nothing may hold that up."""
        await self._known.wait()
        tuning = self.services.tuning
        self._sign_feed = PollingFeed(
            lambda: tuning.under_way().look,
            lambda view: self.post_message(TuningSeen(view)),
            self.post_message,
            period_s=TUNING_POLL_S,
        )
        self._sign_feed.start()

    def on_tuning_seen(self, news: m.TuningSeen) -> None:
        """A tuning is told of on the main screen while it goes on, and once it has ended until somebody looks."""
        view, before = news.view, self.state.tuning
        if view is not None and view.status != "running":
            if before is None or self._tune_screen is not None:
                view = None
            elif before.status == "running":
                self._tell_end(view)
        self._show(replace(self.state, tuning=view))

    def _tell_end(self, view: TuningView) -> None:
        sentence = f"{view.id} · {view.title}: {view.status}."
        self.ring(sentence)
        self.say(f"{sentence} o shows it.")

    def on_tune_wanted(self) -> None:
        self.errand(self._open_tune())

    async def _open_tune(self) -> None:
        """The tuning under way, else the newest; where there is none, one is offered."""
        lines = await to_daemon_thread(self.services.tuning.all)
        shown = next((one for one in lines if one.status == "running"), lines[0] if lines else None)
        folder = await self._begin_tuning() if shown is None else shown.folder
        if folder is not None and self._tune_screen is None:
            await self._show_tuning(folder)

    async def _show_tuning(self, folder: Path) -> None:
        from tuner_tui.ui.screens.tune import TuneScreen

        self._tune_screen = TuneScreen()
        if self.state.tuning is not None and self.state.tuning.status != "running":
            self._show(replace(self.state, tuning=None))
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
        self._tuning_feed = PollingFeed(
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
        await self._known.wait()
        current, refusal = self.state.current, words.launch_refusal(self.state, self.main.settings_view)
        if current is None or refusal:
            self.say(refusal, severity="warning")
            return None
        lines = await to_daemon_thread(lambda: self.services.tuning.plan(current))
        minutes = await self._minutes_wanted("Tune", lines)
        return None if minutes is None else await to_daemon_thread(lambda: self.services.tuning.start(current, minutes))

    async def _minutes_wanted(self, heading: str, lines: Sequence[tuple[str, str]]) -> float | None:
        """How long a tuning may take; None where it is not wanted. What was chosen last is offered again."""
        from tuner_tui.tuning.trials.trial_protocol import DEFAULT_MINUTES
        from tuner_tui.ui.screens.tune import TuneStartScreen

        wanted = await self.push_screen_wait(TuneStartScreen(lines, self._minutes or DEFAULT_MINUTES, heading))
        self._minutes = wanted or self._minutes
        return wanted

    async def _abort_tuning(self) -> None:
        folder = self._tuning
        question = ABORT_QUESTION.format(name="" if folder is None else folder.name)
        if folder is not None and await self.push_screen_wait(ConfirmScreen("End the tuning", question, "end it")):
            await to_daemon_thread(lambda: self.services.tuning.abort(folder))
            self.say(f"{folder.name} ends as soon as its trial is stopped.")

    async def _resume_tuning(self) -> None:
        folder = self._tuning
        look = None if self._tune_screen is None else self._tune_screen.looked
        if look is not None and not can_resume(look.view):
            self.say(f"{look.view.id} is {look.view.status}: there is nothing to go on with.", severity="warning")
        elif folder is not None:
            minutes = await self._minutes_wanted(f"Go on with {folder.name}", _resume_lines(look))
            if minutes is not None:
                current = self.state.current
                await to_daemon_thread(lambda: self.services.tuning.resume(folder, current, minutes))
                self._follow_tuning(folder)

    async def _pick_tuning(self) -> None:
        lines = await to_daemon_thread(self.services.tuning.all)
        items = [PickerItem(one.id, f"{one.status:<9} {one.title}".rstrip(), one.folder) for one in lines]
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
        remedy = steps.winner_as_remedy(self.state, look.view.id, look.view.verdict)
        changes = steps.remedy_changes(self.state, remedy)
        same = await to_daemon_thread(lambda: self.services.tuning.tunes(folder, current))
        when = "for the next run" if same else f"for another training than that tuned: {look.view.title}"
        if await self.push_screen_wait(DiffScreen(remedy, changes, when)):
            self._show(steps.with_winner(self.state, look.view.id, remedy))
            self.say("The winner's settings are those of the next run. u takes them back.")


def _resume_lines(look: TuningSnapshot | None) -> list[tuple[str, str]]:
    """Where a tuning goes on from."""
    lines = [("Keeps", "every trial that was measured; what was tried is not tried again")]
    return lines if look is None or not look.view.trouble else [("Stands", look.view.trouble), *lines]
