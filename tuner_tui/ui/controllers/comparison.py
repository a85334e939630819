"""Chooses two runs and shows them side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tuner_tui.ui.backend.daemon_thread import to_daemon_thread
from tuner_tui.ui.backend.feeds import PollingFeed
from tuner_tui.ui.controllers.settings import SettingsApp
from tuner_tui.ui.messages import ComparedArrived
from tuner_tui.ui.screen_state import status_text as words
from tuner_tui.ui.screens.pickers import PickScreen

if TYPE_CHECKING:
    from tuner_tui.ui import messages as m
    from tuner_tui.ui.screens.compare import CompareScreen


PERIOD_S = 5.0
"""A comparison moves slowly: a run that lives is read again so often."""


class CompareApp(SettingsApp):
    """Asks for a second run, and shows the two."""

    _compare_screen: CompareScreen | None = None

    def on_compare_wanted(self) -> None:
        self.errand(self.compare(self.state.folder))

    async def compare(self, first: Path | None, second: Path | None = None) -> None:
        """Show `first` beside `second`; which, where they are not given, is asked for."""
        first = first or await self._pick("Compare", None)
        second = second or (first and await self._pick(f"Compare {first.name} with", first))
        if first is not None and second is not None:
            await self._show_two(first, second)

    async def _pick(self, heading: str, but: Path | None) -> Path | None:
        runs = [run for run in await to_daemon_thread(self.services.runs) if run.folder != but]
        empty = "There is no other run to compare with." if but else "No run was started yet; t starts one."
        return await self.push_screen_wait(PickScreen(heading, words.run_items(runs), empty))

    async def _show_two(self, first: Path, second: Path) -> None:
        from tuner_tui.ui.screens.compare import CompareScreen

        services = self.services
        feed = PollingFeed(
            lambda: services.comparing(first, second).look,
            lambda found: self.post_message(ComparedArrived(found)),
            self.post_message,
            over=lambda found: not found.live,
            period_s=PERIOD_S,
        )
        self._compare_screen = CompareScreen((first.name, second.name))
        feed.start()
        try:
            await self.push_screen_wait(self._compare_screen)
        finally:
            feed.stop()
            self._compare_screen = None

    def on_compared_arrived(self, news: m.ComparedArrived) -> None:
        if self._compare_screen is not None:
            self._compare_screen.compared = news.compared
