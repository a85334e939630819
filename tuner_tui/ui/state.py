"""The state of the main screen as one immutable value, with pure transitions to the next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.advice.batch_scaling import effective_batch_note
from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.recommend.target import target_of
from tuner_tui.advice.settings_check import differing_settings
from tuner_tui.advice.situation import effective_settings, observed_values, situation_of_state
from tuner_tui.core.text import format_observed
from tuner_tui.core.units import UNKNOWN
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.read.reader import RunRow, RunView
from tuner_tui.runs.read.run_context import RunContext
from tuner_tui.settings.distributed import AccelerateConfig, process_count
from tuner_tui.settings.edit_history import EditHistory
from tuner_tui.settings.job import CommandJob, Job, same_training
from tuner_tui.settings.model import (
    FIELDS,
    WEAK_ORIGINS,
    AppliedRemedy,
    Origin,
    OriginKind,
    Resolved,
    Settings,
    Value,
    parse_value,
)
from tuner_tui.tuning.search.space import TUNED_FIELDS
from tuner_tui.tuning.trial import TuningConclusion
from tuner_tui.tuning.trial_log import TuningView
from tuner_tui.ui.records import DEMO, JobFacts, TrainingConfig
from tuner_tui.view.estimate_rows import OUT_OF_MEMORY
from tuner_tui.view.settings_form import DataParallel, ValueInEffect, format_field


class SettingChange(NamedTuple):
    """A setting that a remedy changes: its label, the current value and the new one."""

    label: str
    old: str
    new: str

    def __str__(self) -> str:
        """Return `micro batch 8 → 16`, or `micro batch 16` of none."""
        return f"{self.label} {f'{self.old} → ' * (self.old != UNKNOWN)}{self.new}"


LOAD_LIMIT = 20
NOT_SET = "not set"
IN_USE = "now"
"""Ends the title of a remedy that the settings or the job have."""


class LoadedSettings(Struct, frozen=True):
    """What was loaded, the history of settings since then, and the job before it was edited."""

    loaded: TrainingConfig
    editing: EditHistory
    saved_job: Job | None


class UiState(Struct, frozen=True):
    """What the main screen shows.

    What was not read yet is None. `loaded` is what was loaded or saved last, `editing` the history of settings since
    then; they are read together with `folder`, that of the followed run, which is None where none is. `view` and
    `findings` are those of this run, `context` are earlier ones. `facts` are those of the job shown. `tuning` is the
    one that runs, or the last one until its result was looked at. `past` and `future` are what was shown before and
    after presets were loaded, newest last. `saved_job` is the job as it was loaded or saved. `recent` are the newest
    runs. `request` names what is done for the user and takes a while.
    """

    loaded: TrainingConfig | None = None
    editing: EditHistory | None = None
    inventory: Inventory | None = None
    interpreter: Interpreter | None = None
    folder: Path | None = None
    view: RunView | None = None
    findings: tuple[Finding, ...] | None = None
    context: RunContext | None = None
    saved_job: Job | None = None
    facts: JobFacts | None = None
    tuning: TuningView | None = None
    past: tuple[LoadedSettings, ...] = ()
    future: tuple[LoadedSettings, ...] = ()
    recent: tuple[RunRow, ...] = ()
    request: str = ""

    @property
    def running(self) -> bool:
        return self.view is not None and self.view.status.live

    @property
    def current(self) -> TrainingConfig | None:
        if self.loaded is None or self.editing is None:
            return None
        return replace(self.loaded, resolved=self.editing.current)

    @property
    def ready(self) -> bool:
        """Whether settings, job, machine and interpreter are known, so that the settings shown are final."""
        return None not in (self.editing, self.facts, self.inventory, self.interpreter)

    @property
    def is_reading(self) -> bool:
        """Whether the followed run and its diagnosis, or without one settings and machine, are not read yet."""
        return not self.ready if self.folder is None else self.view is None or self.findings is None

    @property
    def is_reading_values(self) -> bool:
        """Whether the values that the command has of its own may still be read, in its files or in its run."""
        starting = self.view is None or (self.running and not self.view.state.in_effect)
        return self.facts is None or (self.folder is not None and starting)

    @property
    def unknown_values(self) -> frozenset[str]:
        """The settings of a command that are neither chosen nor known: what the form has for them is only a default."""
        return self._unknown_in(None if self.editing is None else self.editing.current)

    @property
    def unknown_before(self) -> frozenset[str]:
        """The same of the settings as they were loaded or saved."""
        return self._unknown_in(None if self.editing is None else self.editing.saved)

    def _unknown_in(self, resolved: Resolved | None) -> frozenset[str]:
        if resolved is None or self.loaded is None or not isinstance(self.loaded.job, CommandJob):
            return frozenset()
        return frozenset(name for name in FIELDS if resolved.origin(name).kind == OriginKind.DEFAULT)

    @property
    def failure(self) -> str:
        """That the followed run ran out of memory, if the settings shown are still its own; else empty."""
        view, current = self.view, self.current
        if view is None or view.record is None or current is None or view.record.job != current.job:
            return ""
        if view.state.outcome != "out-of-memory":
            return ""
        used = view.record.resolved
        used = self._with_facts(used) if isinstance(current.job, CommandJob) else used
        return OUT_OF_MEMORY if used.settings == current.resolved.settings else ""

    def _with_facts(self, resolved: Resolved) -> Resolved:
        """Return `resolved` with the values that the command names itself, and those seen in its followed run."""
        run, in_effect = self._seen_in_run
        named = resolved if self.facts is None else resolved.with_own(self.facts.given, self.facts.sources)
        chosen = frozenset(named.given)
        settings = effective_settings(named.settings, chosen, in_effect)
        observed = {name for name, value in observed_values(in_effect).items() if getattr(settings, name) == value}
        if "dataloader_num_workers" in observed and settings.dataloader_num_workers == 0:
            observed.add("dataloader_prefetch_factor")  # nothing is fetched ahead without workers
        seen = dict.fromkeys(observed - chosen, Origin(OriginKind.OBSERVED, f"in {run}"))
        return replace(named, settings=settings, origins={**named.origins, **seen})

    @property
    def batch_note(self) -> str:
        """How the changes of the settings changed the effective batch; empty if they did not."""
        editing = self.editing
        if editing is None or "per_device_train_batch_size" in self.unknown_values | self.unknown_before:
            return ""
        return effective_batch_note(editing.saved.settings, editing.current.settings, self.data_parallel.replicas)

    @property
    def edited(self) -> bool:
        """Whether the user has changed settings or job, and no training runs."""
        changed = self.editing is not None and (self.editing.can_undo or self.editing.can_redo)
        return (changed or self.job_edited) and not self.running

    @property
    def remedies(self) -> tuple[AppliedRemedy, ...]:
        """The remedies that the followed run was started with."""
        record = None if self.view is None else self.view.record
        return () if record is None else record.resolved.last_remedies

    @property
    def _before_remedies(self) -> tuple[Mapping[str, Value], Mapping[str, str | None]]:
        """The values and the variables that these remedies replaced."""
        values = {name: value for remedy in self.remedies for name, value in remedy.before.items()}
        return values, {name: value for remedy in self.remedies for name, value in remedy.env_before.items()}

    @property
    def changes_taken_back(self) -> tuple[SettingChange, ...]:
        """What changes if these remedies are taken back."""
        values, env = self._before_remedies
        return (*self.changes_to(values), *self._env_changes(env))

    def with_remedies_taken_back(self) -> UiState:
        """Return to the values and variables that the remedies of the followed run replaced."""
        if self.loaded is None or not self.remedies:
            return self
        values, replaced = self._before_remedies
        env = {name: value for name, value in {**self.loaded.job.env, **replaced}.items() if value is not None}
        origin = Origin(OriginKind.EDITED, f"as in {self.remedies[0].run}")
        return self.with_job(replace(self.loaded.job, env=env)).with_changes(values, origin)

    @property
    def job_edited(self) -> bool:
        return self.loaded is not None and self.loaded.job != self.saved_job

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to undo, or what was shown before something was loaded."""
        return bool(self.past) or (self.editing is not None and self.editing.can_undo)

    @property
    def dirty(self) -> bool:
        return self.job_edited or (self.editing is not None and self.editing.dirty)

    @property
    def data_parallel(self) -> DataParallel:
        """Observed in the followed run if it trains the job shown; else what job, settings and machine imply."""
        if self.loaded is None:
            return DataParallel()
        job, observed = self.loaded.job, observed_data_parallel(self.view)
        if observed is not None and observed[0] == job:
            return observed[1]
        if self.inventory is None:
            return DataParallel(process_count(job, accelerate=self.accelerate))
        settings = Settings() if self.editing is None else self.editing.current.settings
        target = target_of(self.inventory, self.interpreter, job, self.accelerate).trained_with(settings)
        perhaps = 1 if target.spread_known else len(target.gpus)
        copies = min(target.processes, target.replicas)  # a tool may split one over several processes
        return DataParallel(copies, target.replicas // copies, perhaps)

    @property
    def accelerate(self) -> AccelerateConfig | None:
        """The file with which accelerate starts the job."""
        return None if self.facts is None else self.facts.accelerate

    @property
    def values_in_effect(self) -> Mapping[str, ValueInEffect]:
        """What the followed run uses in place of the values shown, if these were given to it."""
        view, current = self.view, self.current
        if view is None or view.record is None or current is None or not same_training(view.record.job, current.job):
            return {}
        return {
            check.name: ValueInEffect(
                "not applied" if check.seen is None else f"in effect {format_observed(check.seen)}", check.why
            )
            for check in differing_settings(situation_of_state(view.state, view.record))
            if check.asked == getattr(current.resolved.settings, check.name, None)
        }

    def form_differs(self, other: UiState) -> bool:
        """Whether the settings form looks different. It does not for the news of a run, which come every second."""
        parts = ("loaded", "editing", "inventory", "interpreter", "facts")
        if any(getattr(self, part) is not getattr(other, part) for part in parts):
            return True
        if self.is_reading_values != other.is_reading_values or self.failure != other.failure:
            return True
        return self.view is not other.view and observed_data_parallel(self.view) != observed_data_parallel(other.view)

    def with_config(self, config: TrainingConfig) -> UiState:
        """Load `config`; undo brings back what was shown before."""
        # Undo works on two levels: changes of the settings shown, in `editing`, and the loading of presets, in `past`.
        # A preset keeps its own history while another one is shown, so undo goes back into it.
        shown = self._shown
        if shown is not None:  # what was undone there cannot be redone after this
            shown = replace(shown, editing=replace(shown.editing, future=()))
        past = self.past if shown is None else (*self.past, shown)[-LOAD_LIMIT:]
        editing = EditHistory.of(config.resolved)
        facts = self._facts_of(config.job)
        return replace(self, loaded=config, editing=editing, saved_job=config.job, facts=facts, past=past, future=())

    def _facts_of(self, job: Job) -> JobFacts | None:
        """What is known of `job`: nothing, if it is another job."""
        return self.facts if self.loaded is not None and self.loaded.job == job else None

    @property
    def _shown(self) -> LoadedSettings | None:
        if self.loaded is None or self.editing is None:
            return None
        return LoadedSettings(self.loaded, self.editing, self.saved_job)

    def _showing(self, shown: LoadedSettings) -> UiState:
        facts = self._facts_of(shown.loaded.job)
        return replace(self, loaded=shown.loaded, editing=shown.editing, saved_job=shown.saved_job, facts=facts)

    def with_job(self, job: Job) -> UiState:
        """Replace the job; undo brings back the one before.

        A command keeps its own defaults: recommended values are dropped for one, and all of the demo.
        """
        shown = self._shown
        if shown is None or self.loaded is None or self.editing is None or job == self.loaded.job:
            return self
        same_script = getattr(job, "command", ())[:2] == getattr(self.loaded.job, "command", ())[:2]
        cwd = self.loaded.cwd if same_script else None  # another command is one of the folder of the screen
        past = (*self.past, shown)[-LOAD_LIMIT:]
        loaded, current, facts = replace(self.loaded, job=job, cwd=cwd, lacking=()), self.editing.current, None
        if job.env != self.loaded.job.env:  # what was set by a remedy may be gone
            current = replace(current, env_remedies=())
        editing = replace(self.editing, current=current, past=(), future=())
        if isinstance(job, CommandJob):
            dropped = WEAK_ORIGINS
            if loaded.preset == DEMO:
                dropped |= {OriginKind.PRESET, OriginKind.EDITED}
                loaded = replace(loaded, preset=None, base=None)
            editing = editing.map(lambda resolved: _without(resolved, dropped))
            of_env = replace(job, env=self.loaded.job.env) == self.loaded.job
            facts = self.facts if of_env else None
        return replace(self, loaded=loaded, editing=editing, facts=facts, past=past, future=())

    def with_seen(self, before: UiState) -> UiState:
        """Show the values that this command names itself, and those seen in its followed run, in place of defaults."""
        loaded, editing = self.loaded, self.editing
        if loaded is None or editing is None or not isinstance(loaded.job, CommandJob):
            return self
        if (before.facts, before.editing, before._seen_in_run) == (self.facts, editing, self._seen_in_run):
            return self
        completed = editing.map(self._with_facts)
        return self if completed == editing else replace(self, editing=completed)

    @property
    def _seen_in_run(self) -> tuple[str, Mapping[str, Any]]:
        """The followed run of this job, and what is in effect in it; empty before it was read, or for another job."""
        view = self.view
        job = None if self.loaded is None else self.loaded.job
        if view is None or view.record is None or job is None or not same_training(view.record.job, job):
            return "", {}
        return view.record.id, view.state.in_effect

    def with_saved(self, preset: str) -> UiState:
        if self.loaded is None or self.editing is None:
            return self
        named = replace(self.loaded, preset=preset)
        return replace(self, loaded=named, editing=self.editing.saved_now(), saved_job=named.job)

    def with_edit(self, name: str, text: str) -> UiState:
        if self.editing is None:
            return self
        return self._edited(self.editing.edit(name, parse_value(name, text), unknown=self.unknown_values))

    def _edited(self, editing: EditHistory) -> UiState:
        """Show the settings after a change: what was undone before can no longer be redone."""
        return self if editing is self.editing else replace(self, editing=editing, future=())

    def with_changes(self, change: Mapping[str, Value], origin: Origin | Mapping[str, Origin]) -> UiState:
        """Set several fields in one undoable step. Raises `FieldError`."""
        if self.editing is None:
            return self
        return self._edited(self.editing.apply(change, origin, self.unknown_values))

    def with_remedy(self, finding: Finding, remedy: Remedy) -> UiState:
        """Set what a remedy changes for a finding on the followed run, which is named as the origin of values."""
        if self.loaded is None or self.editing is None:
            return self
        run, job = None if self.folder is None else self.folder.name, self.loaded.job
        seen = {} if self.view is None else self.view.state.in_effect
        before = effective_settings(self.editing.current.settings, frozenset(FIELDS) - self.unknown_values, seen)
        origin = remedy.origin(finding.cause, run, before, job.env)
        if remedy.change:
            return self.with_changes(remedy.change, origin)
        changed = self.with_job(remedy.applied_to(job))
        if changed is self or changed.editing is None or origin.remedy is None or not remedy.env:
            return changed
        current = replace(changed.editing.current, env_remedies=(origin.remedy,))
        return replace(changed, editing=replace(changed.editing, current=current))

    def with_undo(self) -> UiState:
        if self.editing is None or self._shown is None:
            return self
        # First the changes since the last loading, then the loading itself.
        if self.editing.can_undo or not self.past:
            return replace(self, editing=self.editing.undo())
        return replace(self._showing(self.past[-1]), past=self.past[:-1], future=(*self.future, self._shown))

    def with_redo(self) -> UiState:
        if self.editing is None or self._shown is None:
            return self
        if self.editing.can_redo or not self.future:
            return replace(self, editing=self.editing.redo())
        return replace(self._showing(self.future[-1]), past=(*self.past, self._shown), future=self.future[:-1])

    def changes_by(self, remedy: Remedy) -> tuple[SettingChange, ...]:
        job = None if self.loaded is None else self.loaded.job
        if remedy.change or job is None:
            return self.changes_to(remedy.change)
        if remedy.command:
            before = shlex.join(getattr(job, "command", ()))
            return (SettingChange("Command", before, shlex.join(remedy.command)),)
        return self._env_changes(remedy.env)

    def _env_changes(self, env: Mapping[str, str | None]) -> tuple[SettingChange, ...]:
        now = {} if self.loaded is None else self.loaded.job.env
        changed = {name: value for name, value in env.items() if now.get(name) != value}
        return tuple(SettingChange(name, now.get(name, NOT_SET), value or NOT_SET) for name, value in changed.items())

    @property
    def trains_another(self) -> bool:
        """Whether the settings are those of another training than the followed run."""
        record = None if self.view is None else self.view.record
        return record is not None and self.loaded is not None and not self.loaded.trains(record.job)

    @property
    def findings_shown(self) -> tuple[Finding, ...]:
        """The findings of the followed run, which is named where the settings are those of another training.

        A remedy whose values the settings have now cannot be applied again.
        """
        run = f"{self.folder.name}: " if self.folder is not None and self.trains_another else ""

        def shown(remedy: Remedy) -> Remedy:
            if self.editing is None or not remedy.can_apply or self.changes_by(remedy):
                return remedy
            changed = "settings" if remedy.change else "job"
            return replace(remedy, title=f"{remedy.title} · in the {changed} {IN_USE}", change={}, env={})

        return tuple(
            replace(each, sentence=run + each.sentence, remedies=tuple(map(shown, each.remedies)))
            for each in self.findings or ()
        )

    def changes_to(self, values: Mapping[str, Value]) -> tuple[SettingChange, ...]:
        """Return the settings whose value is another in `values`, or is not known."""
        if self.editing is None or not values:
            return ()
        settings, unknown = self.editing.current.settings, self.unknown_values
        return tuple(
            SettingChange(
                FIELDS[name].label,
                UNKNOWN if name in unknown else format_field(FIELDS[name], getattr(settings, name)),
                format_field(FIELDS[name], value),
            )
            for name, value in values.items()
            if name in unknown or getattr(settings, name) != value
        )

    def winner_as_remedy(self, tuning: str, conclusion: TuningConclusion) -> Remedy:
        """Return the winner of a tuning as a remedy for the settings shown: of them only what a tuning may change."""
        settings = None if self.editing is None else self.editing.current.settings
        tuned = {name: getattr(conclusion.winner, name) for name in TUNED_FIELDS}
        return Remedy(
            title=f"The winner of {tuning}",
            why=conclusion.sentence,
            change={name: value for name, value in tuned.items() if value != getattr(settings, name, None)},
            effect=conclusion.sentence,
            rests_on=" ".join(filter(None, (f"measured by {tuning} on this machine.", conclusion.learning_rate_note))),
        )


def _without(resolved: Resolved, dropped: frozenset[OriginKind]) -> Resolved:
    """Return `resolved` with the defaults in place of all values of the origins `dropped`."""
    origins = {name: origin for name, origin in resolved.origins.items() if origin.kind not in dropped}
    settings = type(resolved.settings)(**{name: getattr(resolved.settings, name) for name in origins})
    return Resolved(settings, origins)


def observed_data_parallel(view: RunView | None) -> tuple[Job, DataParallel] | None:
    """Return the job of a run and what was observed in it, or None until it trains."""
    if view is None or view.record is None or view.state.replicas is None:
        return None
    processes = max(1, min(len(view.state.ranks), view.state.replicas))
    return view.record.job, DataParallel(processes, view.state.replicas // processes)
