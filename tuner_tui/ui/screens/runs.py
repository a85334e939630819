"""The list of runs: follow another one, or compare two."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import OptionList

from tuner_tui.ui.screens.pick import Item, PickScreen

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class RunPicked:
    """A run of the list; `compare` where it is to be compared, and not to be followed."""

    folder: Path
    compare: bool = False


class RunsScreen(PickScreen[RunPicked]):
    """Shows the runs; the answer is the one picked and what for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "compare", "Compare", id="runs.pick-compare", tooltip="Compare this run with another one"),
    ]
    hint = "enter follow · v compare · esc back"

    def __init__(self, runs: Sequence[Item[Path]]) -> None:
        items = [Item(run.label, run.about, RunPicked(run.value), run.open) for run in runs]
        super().__init__("Runs", items, "No run was started yet; t starts one.")

    def action_compare(self) -> None:
        """Compare the run under the cursor."""
        for options in self.query(OptionList):
            if options.highlighted is not None:
                self.dismiss(RunPicked(self._items[options.highlighted].value.folder, compare=True))
