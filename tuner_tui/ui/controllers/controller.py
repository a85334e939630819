"""Base class of the controllers."""

from __future__ import annotations

from tuner_tui.ui.backend.facade import Backend
from tuner_tui.ui.state import UiState
from tuner_tui.ui.state_store import StateStore
from tuner_tui.ui.terminal.base_app import BaseApp


class Controller:
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
