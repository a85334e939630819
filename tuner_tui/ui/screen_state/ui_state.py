"""The state of the screen as one immutable value, and pure transitions between states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tuner_tui.ui.drawing.settings_form import SettingsView
from tuner_tui.ui.screen_state.data_parallel import data_parallel_of, observed_data_parallel

if TYPE_CHECKING:
    from pathlib import Path

    from tuner_tui.advice.finding import Finding, Remedy
    from tuner_tui.hardware.interpreter.probe import Interpreter
    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.runs.read.reader import RunView
    from tuner_tui.settings.distributed import AccelerateConfig
    from tuner_tui.settings.edit_history import EditHistory
    from tuner_tui.settings.fields import FieldSpec
    from tuner_tui.settings.job import Job
    from tuner_tui.settings.model import Settings
    from tuner_tui.settings.origin import Resolved
    from tuner_tui.settings.rules.problem import Problem
    from tuner_tui.tuning.process.tuning_reader import TuningView
    from tuner_tui.tuning.trial import TuningConclusion
    from tuner_tui.ui.backend.interface import Backend, TrainingConfig
    from tuner_tui.ui.screens.remedy import SettingChange


@dataclass(frozen=True, slots=True)
class UiState:
    """`with_loaded` is what was loaded or saved last; `editing` the settings since then, with undo and redo.

    `findings` are those of the followed run. `accelerate` is what files say of how accelerate starts the job.
    `tuning` is one under way, or one that has ended and that nobody has looked at since.
    """

    specs: tuple[FieldSpec, ...] = ()
    opened: TrainingConfig | None = None
    editing: EditHistory | None = None
    inventory: Inventory | None = None
    interpreter: Interpreter | None = None
    folder: Path | None = None
    view: RunView | None = None
    findings: tuple[Finding, ...] = ()
    job_edited: bool = False
    accelerate: AccelerateConfig | None = None
    tuning: TuningView | None = None

    @property
    def running(self) -> bool:
        """Whether the followed run lives."""
        return self.view is not None and self.view.status.live

    @property
    def current(self) -> TrainingConfig | None:
        """What would be trained or saved now."""
        if self.opened is None or self.editing is None:
            return None
        return replace(self.opened, resolved=self.editing.current)


def with_loaded(state: UiState, preset: TrainingConfig) -> UiState:
    """With the settings and the job of `preset`; what was edited before is gone."""
    from tuner_tui.settings.edit_history import EditHistory

    return replace(state, opened=preset, editing=EditHistory.of(preset.resolved), job_edited=False)


def with_job(state: UiState, job: Job) -> UiState:
    """With another job. What was recommended for the built-in one is nothing that somebody chose for a command."""
    from tuner_tui.settings.job import CommandJob

    if state.opened is None or state.editing is None or job == state.opened.job:
        return state
    editing = state.editing
    if isinstance(job, CommandJob):
        editing = replace(editing, current=_explicit_only(editing.current), saved=_explicit_only(editing.saved))
    return replace(state, opened=replace(state.opened, job=job), editing=editing, job_edited=True)


def _explicit_only(resolved: Resolved) -> Resolved:
    from tuner_tui.settings.origin import OriginKind, Resolved

    weak = (OriginKind.DEFAULT, OriginKind.RECOMMENDED)
    origins = {name: origin for name, origin in resolved.origins.items() if origin.kind not in weak}
    settings = type(resolved.settings)(**{name: getattr(resolved.settings, name) for name in origins})
    return Resolved(settings, origins)


def with_recommended_settings(state: UiState, services: Backend) -> UiState:
    """With what is recommended for the box in every field that nobody chose, as soon as box and Python are known."""
    inventory, interpreter, preset, editing = state.inventory, state.interpreter, state.opened, state.editing
    if inventory is None or interpreter is None or preset is None or editing is None or preset.as_it_ran:
        return state
    current, on_disk = (
        services.recommended(resolved, inventory, interpreter, preset.job)
        for resolved in (editing.current, editing.saved)
    )
    return replace(state, editing=replace(editing, current=current, saved=on_disk))


def with_saved(state: UiState, preset: str) -> UiState:
    """The settings shown are now those of `preset`."""
    if state.opened is None or state.editing is None:
        return state
    named = replace(state.opened, preset=preset)
    return replace(state, opened=named, editing=state.editing.saved_now(), job_edited=False)


def with_edit(state: UiState, name: str, text: str) -> UiState:
    """With the field `name` set to what `text` means; raises `FieldError`."""
    from tuner_tui.settings.fields import parse_value

    if state.editing is None:
        return state
    return replace(state, editing=state.editing.edit(name, parse_value(name, text)))


def with_remedy(state: UiState, cause: str, remedy: Remedy) -> UiState:
    """With the change of `remedy`, the answer to the finding `cause`; raises `FieldError`."""
    from tuner_tui.settings.origin import Origin, OriginKind

    if state.editing is None:
        return state
    return replace(state, editing=state.editing.apply(remedy.change, Origin(OriginKind.REMEDY, cause)))


def winner_as_remedy(state: UiState, tuning: str, verdict: TuningConclusion) -> Remedy:
    """The winner of a tuning as a change of the settings shown."""
    from tuner_tui.advice.finding import Remedy

    now = None if state.editing is None else state.editing.current.settings
    names = type(verdict.winner).model_fields
    change = {
        name: getattr(verdict.winner, name)
        for name in names
        if getattr(verdict.winner, name) != getattr(now, name, None)
    }
    return Remedy(
        title=f"The winner of {tuning}",
        why=verdict.sentence,
        change=change,
        effect=verdict.sentence,
        rests_on=" ".join(filter(None, (f"measured by {tuning} on this box.", verdict.learning_rate_note))),
    )


def with_winner(state: UiState, tuning: str, remedy: Remedy) -> UiState:
    """With the winner of `tuning` as `remedy` has it; raises `FieldError`."""
    from tuner_tui.settings.origin import Origin, OriginKind

    if state.editing is None:
        return state
    return replace(state, editing=state.editing.apply(remedy.change, Origin(OriginKind.TUNED, tuning)))


def with_undo(state: UiState) -> UiState:
    """Before the last change."""
    return state if state.editing is None else replace(state, editing=state.editing.undo())


def with_redo(state: UiState) -> UiState:
    """With the change taken back made again."""
    return state if state.editing is None else replace(state, editing=state.editing.redo())


def form_differs(before: UiState, now: UiState) -> bool:
    """Whether the form has to be worked out again; the news of a run, once a second, leaves it as it is."""
    parts = ("specs", "opened", "editing", "inventory", "interpreter", "accelerate")
    if any(getattr(before, part) is not getattr(now, part) for part in parts):
        return True
    return before.view is not now.view and observed_data_parallel(before) != observed_data_parallel(now)


def settings_view(state: UiState, services: Backend) -> SettingsView | None:
    """What the settings panel shows."""
    if state.opened is None or state.editing is None:
        return None

    job = state.opened.job

    def check(settings: Settings) -> tuple[Problem, ...]:
        return services.problems(settings, state.inventory, state.interpreter, job)

    resolved = state.editing.current
    return SettingsView(
        specs=state.specs,
        resolved=resolved,
        saved=state.editing.saved,
        problems=check(resolved.settings),
        preset=state.opened.preset,
        job_edited=state.job_edited,
        spread=data_parallel_of(state, job),
        check=check,
    )


def remedy_changes(state: UiState, remedy: Remedy) -> tuple[SettingChange, ...]:
    """What `remedy` would really change in the settings shown."""
    from tuner_tui.ui.drawing.settings_form import format_field
    from tuner_tui.ui.screens.remedy import SettingChange

    if state.editing is None:
        return ()
    settings = state.editing.current.settings
    specs = {spec.name: spec for spec in state.specs}
    return tuple(
        SettingChange(
            specs[name].label, format_field(specs[name], getattr(settings, name)), format_field(specs[name], value)
        )
        for name, value in remedy.change.items()
        if getattr(settings, name) != value
    )


def all_findings(state: UiState, services: Backend) -> tuple[Finding, ...]:
    """What is wrong with the followed run, then with the box, whether a run is followed or not."""
    job = None if state.opened is None else state.opened.job
    return state.findings + services.box_findings(state.inventory, state.interpreter, job)


def is_ready(state: UiState) -> bool:
    """Whether settings, box and Python are there, so that the settings shown are those that would be trained."""
    return None not in (state.editing, state.inventory, state.interpreter)


def is_being_edited(state: UiState) -> bool:
    """Whether somebody has changed settings or job here, and nothing trains."""
    changed = state.editing is not None and (state.editing.can_undo or state.editing.can_redo)
    return (changed or state.job_edited) and not state.running


def is_dirty(state: UiState) -> bool:
    """Whether there are changes that were not saved."""
    return state.job_edited or (state.editing is not None and state.editing.dirty)
