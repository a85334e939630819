"""Shows the queue, removes runs from it and adds them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tuner_tui.core.daemon_thread import to_daemon_thread
from tuner_tui.ui.backend.feeds import PollingFeed
from tuner_tui.ui.controllers.controller import Controller
from tuner_tui.ui.messages import QueueArrived
from tuner_tui.ui.screens.dialogs import ConfirmScreen, LaunchScreen

if TYPE_CHECKING:
    from tuner_tui.runs.queue.listing import QueueLine
    from tuner_tui.ui.backend.facade import Backend
    from tuner_tui.ui.screens.queue import QueueScreen
    from tuner_tui.ui.state_store import StateStore
    from tuner_tui.ui.terminal.base_app import BaseApp


class QueueController(Controller):
    """Serves requests about the queue. `follow` gets the folder of a run to show."""

    def __init__(
        self, app: BaseApp, store: StateStore, backend: Backend, follow: Callable[[Path | None], None]
    ) -> None:
        super().__init__(app, store, backend)
        self._follow = follow
        self._screen: QueueScreen | None = None

    async def wake(self) -> None:
        """Start the process that starts waiting runs again where it was killed."""
        await to_daemon_thread(self._backend.queue.wake)

    async def open(self) -> None:
        """Show the queue until the user leaves it."""
        from tuner_tui.ui.screens.queue import QueueScreen

        post = self._app.post_message
        feed = PollingFeed(
            self._backend.queue.views(), lambda lines: post(QueueArrived(lines)), post, "The queue cannot be read"
        )
        self._screen = QueueScreen()
        feed.start()
        try:
            await self.wake()
            await self._app.push_screen_wait(self._screen)
        finally:
            feed.stop()
            self._screen = None

    def show_lines(self, lines: tuple[QueueLine, ...]) -> None:
        """Show news of the queue if its screen is still open."""
        if self._screen is not None:
            self._screen.lines = lines

    async def remove(self, run: str, path: Path) -> None:
        """Remove a waiting run from the queue, after a yes."""
        question = f"{run} leaves the queue and never starts. Remove it?"
        if await self._app.push_screen_wait(ConfirmScreen("Remove", question, "remove")):
            await to_daemon_thread(lambda: self._backend.queue.remove(path))

    def show_run(self, path: Path) -> None:
        """Leave the queue and show the run."""
        if self._screen is not None:
            self._screen.action_leave()
        self._follow(path)

    async def add(self) -> None:
        """Queue the training with the settings shown, after a look at it."""
        current, refusal = self._state.current, self._store.launch_refusal()
        if current is None or refusal:
            self._app.show_note(refusal or "The settings have not been read yet.", severity="warning")
            return
        inventory = self._state.inventory
        offer = await to_daemon_thread(lambda: self._backend.queue.offer(current, inventory))
        if await self._app.push_screen_wait(LaunchScreen(offer.lines, "Queue")):
            self._app.show_note(f"Queued as {await to_daemon_thread(offer.add)}.")
