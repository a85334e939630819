"""Edits settings, applies remedies, loads and saves presets."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tuner_tui.ui.backend.daemon_thread import to_daemon_thread
from tuner_tui.ui.backend.interface import NameTakenError
from tuner_tui.ui.screen_state import status_text as words
from tuner_tui.ui.screen_state import ui_state as steps
from tuner_tui.ui.screens.dialogs import ConfirmScreen, NameScreen
from tuner_tui.ui.screens.pickers import PickScreen
from tuner_tui.ui.screens.remedy import DiffScreen
from tuner_tui.ui.state_app import StateApp

if TYPE_CHECKING:
    from tuner_tui.ui import messages as m


class SettingsApp(StateApp):
    """Edits settings, applies remedies, loads and saves presets."""

    def on_setting_edited(self, wanted: m.SettingEdited) -> None:
        from tuner_tui.settings.errors import FieldError

        try:
            self._show(steps.with_edit(self.state, wanted.name, wanted.text))
        except FieldError as error:
            self.say(str(error), severity="error")

    def on_value_typed(self, typed: m.ValueTyped) -> None:
        """The memory of what is being typed is seen before it is accepted."""
        from tuner_tui.settings.errors import FieldError

        state = self.state
        if typed.text is not None:
            with suppress(FieldError):
                state = steps.with_edit(state, typed.name, typed.text)
        self._ask_memory(state)

    def on_undo_wanted(self) -> None:
        self._show(steps.with_undo(self.state))

    def on_redo_wanted(self) -> None:
        self._show(steps.with_redo(self.state))

    def on_remedy_wanted(self, wanted: m.RemedyWanted) -> None:
        when = "for the next run; R restarts this one with it" if self.state.running else "for the next run"

        def apply(yes: bool | None) -> None:
            if yes:
                self._show(steps.with_remedy(self.state, wanted.finding.cause, wanted.remedy))
                self.say(f"{wanted.remedy.title}: set for the next run. u takes it back.")

        self.push_screen(DiffScreen(wanted.remedy, steps.remedy_changes(self.state, wanted.remedy), when), apply)

    # presets

    def on_presets_wanted(self) -> None:
        self.errand(self._pick_preset())

    async def _pick_preset(self) -> None:
        items = words.preset_items(await to_daemon_thread(self.services.presets))
        name = await self.push_screen_wait(PickScreen("Presets", items, "There is no preset."))
        if name is None:
            return
        if steps.is_dirty(self.state):
            question = f"Load {name}? The changes made since the last save are lost."
            if not await self.push_screen_wait(ConfirmScreen("Load", question, "load")):
                return
        self._open(await to_daemon_thread(lambda: self.services.load_preset(name)))

    def on_save_wanted(self) -> None:
        name = self.state.opened.preset if self.state.opened else None
        self.errand(self._save(name) if name else self._save_as())

    def on_save_as_wanted(self) -> None:
        self.errand(self._save_as())

    async def _save_as(self) -> None:
        now = self.state.opened.preset if self.state.opened else None
        name = await self.push_screen_wait(NameScreen("Save as", now or ""))
        if name is not None:
            await self._save(name)

    async def _save(self, name: str) -> None:
        current = self.state.current
        if current is None:
            return
        try:
            await to_daemon_thread(lambda: self.services.save_preset(name, current, False))
        except NameTakenError as taken:
            if not await self.push_screen_wait(ConfirmScreen("Save", f"{taken} Replace it?", "replace")):
                return
            await to_daemon_thread(lambda: self.services.save_preset(name, current, True))
        self._show(steps.with_saved(self.state, name))
        self.say(f"Saved as {name}.")
