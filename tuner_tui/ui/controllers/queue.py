"""Shows the queue, removes runs from it and adds them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tuner_tui.core.daemon_thread import to_daemon_thread
from tuner_tui.ui.backend.facade import Backend
from tuner_tui.ui.controllers.controller import Controller
from tuner_tui.ui.screens.dialogs import ConfirmScreen, LaunchScreen
from tuner_tui.ui.screens.pickers import QueueScreen, queue_items
from tuner_tui.ui.state_store import StateStore
from tuner_tui.ui.terminal.base_app import BaseApp


class QueueController(Controller):
    """Serves requests about the queue. `follow` gets the folder of a run to show."""

    def __init__(
        self, app: BaseApp, store: StateStore, backend: Backend, follow: Callable[[Path | None], None]
    ) -> None:
        super().__init__(app, store, backend)
        self._follow = follow

    async def wake(self) -> None:
        """Start the process that starts waiting runs again where it was killed."""
        await to_daemon_thread(self._backend.queue.wake)

    async def open(self) -> None:
        """List the waiting runs until the user shows one or leaves; on the way runs are removed and added."""
        await self.wake()
        while True:
            lines = await to_daemon_thread(self._backend.queue.lines)
            picked = await self._app.ask(QueueScreen(queue_items(lines, time.time())))
            if picked is None:
                return
            if picked.order == "add":
                await self._add()
            elif picked.folder is not None and picked.order == "remove":
                await self._remove(picked.folder)
            elif picked.folder is not None:
                self._follow(picked.folder)
                return

    async def _remove(self, folder: Path) -> None:
        question = f"{folder.name} leaves the queue and never starts. Remove it?"
        if await self._app.ask(ConfirmScreen("Remove", question, "remove")):
            await to_daemon_thread(lambda: self._backend.queue.remove(folder))

    async def _add(self) -> None:
        """Queue the training with the settings shown, after a look at it."""
        current, refusal = self._state.current, self._store.launch_refusal()
        if current is None or refusal:
            self._app.show_note(refusal or "The settings have not been read yet.", severity="warning")
            return
        inventory = self._state.inventory
        offer = await to_daemon_thread(lambda: self._backend.queue.offer(current, inventory))
        if await self._app.ask(LaunchScreen(offer.lines, "Queue")):
            self._app.show_note(f"Queued as {await to_daemon_thread(offer.add)}.")
