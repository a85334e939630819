"""Dialogs that pick one item of a list: a preset, a tuning or a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from tuner_tui.runs.events.run_state import strip_allocator_message
from tuner_tui.ui.screens.dialogs import Dialog

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from textual.widget import Widget

    from tuner_tui.ui.backend.records import PresetListing, RunListing


T = TypeVar("T")
MAX_JOB_CELLS = 30


@dataclass(frozen=True, slots=True)
class PickerItem(Generic[T]):
    """A line of the list, and the value that picking it returns. Only `open` items can be picked."""

    label: str
    about: str
    value: T
    open: bool = True


class PagedList(OptionList):
    """An option list that ignores page keys before its first layout; Textual's fails with a `KeyError`."""

    def action_page_up(self) -> None:
        if self.scrollable_content_region:
            super().action_page_up()  # type: ignore[no-untyped-call]

    def action_page_down(self) -> None:
        if self.scrollable_content_region:
            super().action_page_down()  # type: ignore[no-untyped-call]


class PickScreen(Dialog[T]):
    """Shows `items` and returns the value of the picked one; shows `empty` if there are none."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor(1)", "Down", id="pick.down", show=False),
        Binding("k", "cursor(-1)", "Up", id="pick.up", show=False),
        Binding("q", "leave", "Back", id="pick.leave", show=False),
    ]
    hint = "enter pick · esc back"

    def __init__(self, heading: str, items: Sequence[PickerItem[T]], empty: str) -> None:
        super().__init__()
        self.heading = heading
        self.hint = self.hint if items else "esc back"
        self._items = items
        self._empty = empty

    def body(self) -> Iterable[Widget]:
        if not self._items:
            yield Static(self._empty, markup=False)
            return
        width = max(len(item.label) for item in self._items)
        options = [
            Option(
                Text.assemble(f"{item.label:<{width}}  ", (item.about, "" if item.open else "dim")),
                disabled=not item.open,
            )
            for item in self._items
        ]
        yield PagedList(*options, compact=True)

    def on_mount(self) -> None:
        for options in self.query(OptionList):
            options.highlighted = next((i for i, item in enumerate(self._items) if item.open), None)

    def action_cursor(self, by: int) -> None:
        """Move the cursor by one line."""
        for options in self.query(OptionList):
            options.action_cursor_down() if by > 0 else options.action_cursor_up()

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._items[event.option_index].value)


@dataclass(frozen=True, slots=True)
class RunPicked:
    """The run picked: to follow, or with `compare` to compare with another one."""

    folder: Path
    compare: bool = False


class RunsScreen(PickScreen[RunPicked]):
    """Lists runs; returns the one picked and what for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "compare", "Compare", id="runs.pick-compare", tooltip="Compare this run with another one"),
    ]
    hint = "enter follow · v compare · esc back"

    def __init__(self, runs: Sequence[PickerItem[Path]]) -> None:
        items = [PickerItem(run.label, run.about, RunPicked(run.value), run.open) for run in runs]
        super().__init__("Runs", items, "No run was started yet; t starts one.")

    def action_compare(self) -> None:
        """Compare the run under the cursor."""
        for options in self.query(OptionList):
            if options.highlighted is not None:
                self.dismiss(RunPicked(self._items[options.highlighted].value.folder, compare=True))


def preset_items(presets: Sequence[PresetListing]) -> list[PickerItem[str]]:
    """Return presets as items; a preset that cannot be loaded cannot be picked and says why."""
    return [
        PickerItem(
            preset.name,
            preset.problem or ("for this machine: " if preset.suits else "") + preset.about,
            preset.name,
            not preset.problem,
        )
        for preset in presets
    ]


def run_items(runs: Sequence[RunListing]) -> list[PickerItem[Path]]:
    """Return runs as items in aligned columns: status, job, last sentence."""
    status_width = max((len(run.status) for run in runs), default=0)
    jobs = [_shorten(strip_allocator_message(run.trains)) for run in runs]
    job_width = max(map(len, jobs), default=0)
    columns = f"{{:<{status_width}}}  {{:<{job_width}}}  {{}}"
    return [
        PickerItem(run.id, columns.format(run.status, job, strip_allocator_message(run.sentence)).rstrip(), run.folder)
        for run, job in zip(runs, jobs, strict=True)
    ]


def _shorten(job: str) -> str:
    return job if len(job) <= MAX_JOB_CELLS else f"{job[: MAX_JOB_CELLS - 1]}…"
