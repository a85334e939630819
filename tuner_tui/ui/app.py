"""The app of the main screen: draws the first frame, opens the session behind it, and hands each request to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tuner_tui.core.daemon_thread import to_daemon_thread
from tuner_tui.ui.feeds import BackendError
from tuner_tui.ui.keys import KEYS
from tuner_tui.ui.panels.bars import KeyFooter
from tuner_tui.ui.panels.output import LogSearchWanted, LogWindowWanted
from tuner_tui.ui.panels.settings import ChoiceWanted, SettingEdited, ValueTyped
from tuner_tui.ui.screens.main import MainScreen
from tuner_tui.ui.terminal.base_app import BaseApp

if TYPE_CHECKING:
    from tuner_tui.ui.backend import Backend
    from tuner_tui.ui.records import TrainingConfig
    from tuner_tui.ui.screen_session import ScreenSession


KEEP_S = 1.0
"""Seconds that leaving may take to keep unsaved changes."""


class TunerApp(BaseApp):
    """Watches, tunes and diagnoses trainings.

    `open_backend` imports the rest of the program; `start` returns what the settings form shows first and the run to
    follow. Both are called on a thread after the first frame.
    """

    CSS_PATH = "app.tcss"
    TITLE = "tuner-tui"

    def __init__(
        self,
        open_backend: Callable[[], Backend],
        start: Callable[[Backend], tuple[TrainingConfig, Path | None]],
        *,
        theme: str = "dark",
        colour: bool = True,
        ascii_only: bool = False,
    ) -> None:
        super().__init__(theme, colour, ascii_only)
        self.main = MainScreen()
        self._session: ScreenSession | None = None
        self._open_backend = open_backend
        self._start = start
        self._can_answer.clear()

    @property
    def session(self) -> ScreenSession:
        """The session, which is open soon after the first frame."""
        assert self._session is not None
        return self._session

    def get_default_screen(self) -> MainScreen:
        return self.main

    # start and end

    def on_mount(self) -> None:
        """Draw the first frame before anything heavy is imported or read."""
        self.call_after_refresh(self.run_task, self._open_session)

    async def _open_session(self) -> None:
        if self.is_in_use:  # the help, which would wait for the interpreter's lock: the imports hold it
            shown = asyncio.Event()
            self.screen.call_after_refresh(self.screen.call_after_refresh, shown.set)
            with suppress(TimeoutError):  # it may be closed at once
                await asyncio.wait_for(shown.wait(), self.answer_limit_s)
        self._session = await to_daemon_thread(self._load_session)
        self.freeze_startup_objects()
        await self.session.start(self._start)
        self._can_answer.set()

    def _load_session(self) -> ScreenSession:
        # The one late import of the screen: YAML, NVML, advice and tuning take longer than the first frame.
        from tuner_tui.ui.screen_session import ScreenSession

        return ScreenSession(self, self.main, self._open_backend())

    def _request(self, request: Callable[[ScreenSession], object]) -> None:
        if self._session is not None:  # until then input waits
            request(self._session)

    def action_leave(self) -> None:
        self.run_task(self._leave)

    async def _leave(self) -> None:
        if self._session is not None:
            with suppress(TimeoutError, BackendError):  # a file system that is full or hangs keeps nobody here
                await asyncio.wait_for(self._session.settings.keep_draft(), KEEP_S)
        self.exit(message=None if self._session is None else self._session.exit_message())

    def action_command_palette(self) -> None:
        """Open the command palette over the main screen; the other screens have keys of their own."""
        self.serve(self._run_command)

    async def _run_command(self) -> None:
        from tuner_tui.ui.screens.pickers import PaletteScreen  # the first frame does without

        keys = {
            "": (*KEYS["main"], *KEYS["page"], *KEYS["app"]),
            "settings": KEYS["settings"],
            "output": KEYS["output"],
        }
        command = await self.ask(PaletteScreen(keys, self.main.query_one(KeyFooter).idle))
        if command is None:
            return
        if command.page:
            self.main.show_page(command.page)
        await (self.main.query_one(f"#{command.page}") if command.page else self.main).run_action(command.action)

    # requests of the user

    def action_do(self, action: str) -> None:
        self._request(lambda session: session.do(action))

    def action_remedy(self, action: str) -> None:
        """`apply` the remedy under the cursor, or show its `diff`."""
        self._request(lambda session: session.remedy(action))

    def on_setting_edited(self, request: SettingEdited) -> None:
        self._request(lambda session: session.settings.edit(request.name, request.text))

    def on_choice_wanted(self, request: ChoiceWanted) -> None:
        self._request(lambda session: self.serve(session.settings.choose, request.name))

    def on_value_typed(self, request: ValueTyped) -> None:
        self._request(lambda session: session.settings.preview_edit(request.name, request.text))

    def on_log_window_wanted(self, request: LogWindowWanted | LogSearchWanted) -> None:
        self._request(lambda session: self.run_task(session.show_log, request, only="log"))

    on_log_search_wanted = on_log_window_wanted
