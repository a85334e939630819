"""Shows the queue, and carries out orders about it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tuner_tui.core.daemon_thread import to_daemon_thread
from tuner_tui.ui.backend.feeds import poll
from tuner_tui.ui.controllers.controller import Controller
from tuner_tui.ui.screens.dialogs import ConfirmScreen, LaunchScreen

if TYPE_CHECKING:
    from tuner_tui.ui.backend.facade import Backend
    from tuner_tui.ui.backend.queue import QueueOrder
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
        """Start the dispatcher again where it was killed."""
        await to_daemon_thread(self._backend.queue.wake)

    async def open(self) -> None:
        """Show the queue until the user leaves it."""
        from tuner_tui.ui.screens.queue import QueueScreen

        self._screen = QueueScreen()
        show = partial(setattr, self._screen, "lines")
        reading = self._app.run_task(poll, self._backend.queue.views(), show, "The queue cannot be read")
        try:
            await self.wake()
            await self._app.ask(self._screen)
        finally:
            reading.cancel()
            self._screen = None

    async def order(self, what: str, entry: str) -> None:
        """Carry out an order about an entry; ask before one is removed."""
        if what == "follow":
            await self._show_run(entry)
            return
        if what == "remove":
            question = f"{entry} leaves the queue and never starts. Remove it?"
            if not await self._app.push_screen_wait(ConfirmScreen("Remove", question, "remove")):
                return
        await to_daemon_thread(lambda: self._backend.queue.order(cast("QueueOrder", what), entry))

    async def _show_run(self, entry: str) -> None:
        folder = await to_daemon_thread(lambda: self._backend.queue.run_folder(entry))
        if folder is None:
            self._app.show_note(f"{entry} has not started yet; the reason is below it.")
            return
        if self._screen is not None:
            self._screen.action_leave()
        self._follow(folder)

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
