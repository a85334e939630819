"""What the screen asks of settings and presets, and how the app does it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tuner_tui.ui import run_words as words
from tuner_tui.ui import state as steps
from tuner_tui.ui.screens.ask_name import NameScreen
from tuner_tui.ui.screens.confirm import ConfirmScreen
from tuner_tui.ui.screens.diff import DiffScreen
from tuner_tui.ui.screens.pick import PickScreen
from tuner_tui.ui.services import NameTaken
from tuner_tui.ui.state_app import StateApp
from tuner_tui.ui.threads import off_loop

if TYPE_CHECKING:
    from tuner_tui.ui import messages as m


class SettingsApp(StateApp):
    """Edits settings, applies remedies, loads and saves presets."""

    def on_setting_edited(self, wanted: m.SettingEdited) -> None:
        from tuner_tui.settings.errors import FieldError

        try:
            self._show(steps.edited(self.state, wanted.name, wanted.text))
        except FieldError as error:
            self.say(str(error), severity="error")

    def on_value_typed(self, typed: m.ValueTyped) -> None:
        """The memory of what is being typed is seen before it is accepted."""
        from tuner_tui.settings.errors import FieldError

        state = self.state
        if typed.text is not None:
            with suppress(FieldError):
                state = steps.edited(state, typed.name, typed.text)
        self._ask_memory(state)

    def on_undo_wanted(self) -> None:
        self._show(steps.undone(self.state))

    def on_redo_wanted(self) -> None:
        self._show(steps.redone(self.state))

    def on_remedy_wanted(self, wanted: m.RemedyWanted) -> None:
        when = "for the next run; R restarts this one with it" if self.state.running else "for the next run"

        def apply(yes: bool | None) -> None:
            if yes:
                self._show(steps.remedied(self.state, wanted.finding.cause, wanted.remedy))
                self.say(f"{wanted.remedy.title}: set for the next run. u takes it back.")

        self.push_screen(DiffScreen(wanted.remedy, steps.changes_of(self.state, wanted.remedy), when), apply)

    # presets

    def on_presets_wanted(self) -> None:
        self.errand(self._pick_preset())

    async def _pick_preset(self) -> None:
        items = words.preset_items(await off_loop(self.services.presets))
        name = await self.push_screen_wait(PickScreen("Presets", items, "There is no preset."))
        if name is None:
            return
        if steps.dirty(self.state):
            question = f"Load {name}? The changes made since the last save are lost."
            if not await self.push_screen_wait(ConfirmScreen("Load", question, "load")):
                return
        self._open(await off_loop(lambda: self.services.load_preset(name)))

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
            await off_loop(lambda: self.services.save_preset(name, current, False))
        except NameTaken as taken:
            if not await self.push_screen_wait(ConfirmScreen("Save", f"{taken} Replace it?", "replace")):
                return
            await off_loop(lambda: self.services.save_preset(name, current, True))
        self._show(steps.saved(self.state, name))
        self.say(f"Saved as {name}.")
