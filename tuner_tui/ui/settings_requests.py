"""Edits settings and the job, applies remedies, loads and saves presets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from tuner_tui.advice.batch_scaling import BatchSplit, rebalance
from tuner_tui.advice.estimate import EstimateRequest
from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.recommend.batch_and_learning_rate import MAX_EFFECTIVE_BATCH, MIN_STEPS
from tuner_tui.advice.recommend.duration_estimate import VARIED, summarise_duration
from tuner_tui.core.daemon_thread import to_daemon_thread
from tuner_tui.core.text import format_table
from tuner_tui.core.units import UNKNOWN
from tuner_tui.settings.errors import FieldError, PresetError
from tuner_tui.settings.file_notes import ABSENT, NOT_COMPLETE
from tuner_tui.settings.file_update import FileUpdate
from tuner_tui.settings.job import BuiltinJob, Job
from tuner_tui.settings.model import FIELDS, Origin, OriginKind, Value, format_value
from tuner_tui.settings.preset_file import NO_GPU, is_measured
from tuner_tui.settings.presets import PresetEntry, preset_path
from tuner_tui.settings.rules import RuleContext
from tuner_tui.ui.drafts import Draft, draft_of, job_of, restorable, with_job
from tuner_tui.ui.feeds import BackendError
from tuner_tui.ui.records import NameTakenError, PresetOutlook, TrainingConfig
from tuner_tui.ui.screens.dialogs import ConfirmScreen, DiffScreen, MemoryScreen, NameScreen
from tuner_tui.ui.screens.pickers import DIALOG_FRAME, DIALOG_SHARE, PickerItem, PickScreen, PresetScreen
from tuner_tui.ui.start_gpus import processes_text, startable_gpus
from tuner_tui.ui.state import UiState
from tuner_tui.ui.state_store import Requests, estimate_request
from tuner_tui.view.cells import READING
from tuner_tui.view.estimate_rows import VERDICTS, figures_of, training_method
from tuner_tui.view.settings_form import effective_batch


class SettingsRequests(Requests):
    """Serves requests about what would be trained next."""

    _python: Path | None = None
    """The Python that trains the job shown."""
    _kept: tuple[str | None, Job, bool, Draft] | None = None
    """The draft that is stored, with its preset, its job, and whether the preset was named."""

    def load(self, config: TrainingConfig, name: str = "") -> None:
        """Show `config`, which the user has opened by a `name`: unsaved changes can be restored then."""
        changed = bool(name) and self._state.dirty
        self._store.update(self._state.with_config(config))
        self._app.run_task(self.read_job, config.job)
        self._app.run_task(self._check_file, config, only="file")
        notes = "\n".join(config.notes)  # what is only read of a script is left as it is
        if notes and (config.resolved.chosen or ABSENT in notes or NOT_COMPLETE in notes):
            self._app.show_note(notes, severity="warning")
        if changed:
            self._app.show_note(f"Loaded {name}. u restores your changes.")

    async def restore_draft(self) -> None:
        """Bring back the changes that were not saved the last time, as a step that can be undone."""
        current = self._state.current
        if current is None:
            return
        draft = await to_daemon_thread(lambda: self._backend.read_draft(current))
        job = job_of(draft)
        self._kept = current.preset, current.job, current.named, draft
        if job is not None:
            self._go_to(self._state.with_job(job))
        editing = self._state.editing
        values, left = restorable(draft, current.resolved if editing is None else editing.current)
        changes = [f"{FIELDS[name].label} {format_value(name, value)}" for name, value in values.items()]
        self._store.update(self._state.with_changes(values, {name: draft[name].origin for name in values}))
        labels = ", ".join(FIELDS[name].label for name in left if name in FIELDS)
        parts = [f"Your unsaved changes are back: {', '.join(changes)}. u discards them."] if changes else []
        if job is not None:
            from tuner_tui.ui.screens.job import job_fields  # needed rarely

            fields = job_fields("built-in" if isinstance(job, BuiltinJob) else "command")
            names = (each.label for each in fields if getattr(job, each.name) != getattr(current.job, each.name, None))
            parts.append(f"Your unsaved changes of the job are back: {', '.join(names)}.")
        parts += [f"Your unsaved changes of {labels} are dropped: they have other values now."] if labels else []
        if parts:
            self._app.show_note("\n".join(parts))

    async def keep_draft(self, after_s: float = 0.0) -> None:
        """Keep unsaved changes for the next time; changes that were brought back and undone are forgotten.

        It is called with each change, as a terminal that is closed leaves no time for it.
        """
        await asyncio.sleep(after_s)
        current, editing, saved_job = self._state.current, self._state.editing, self._state.saved_job
        if current is None or editing is None or saved_job is None:
            return
        named = current.named and not self._state.job_edited  # a named demo is the demo the next time too
        opened = replace(current, job=saved_job, resolved=editing.saved, named=named)
        draft = draft_of(editing.current, editing.saved)
        if self._state.job_edited:
            draft = with_job(draft, current.job)
        name = opened.preset, opened.job, named
        stored = self._kept[3] if self._kept is not None and self._kept[:3] == name else {}
        if draft == stored:  # what another screen of this job has kept is its own
            return
        self._kept = *name, draft
        await to_daemon_thread(lambda: self._backend.keep_draft(opened, draft))

    async def read_job(self, job: Job) -> None:
        """Read what is known of `job`, and ask a new Python for its versions first, then for everything."""
        facts = await to_daemon_thread(lambda: self._backend.read_job(job))
        if self._state.loaded is None or self._state.loaded.job != job:  # another one is shown meanwhile
            return
        python, interpreter = facts.python, self._state.interpreter
        interpreter = interpreter if facts.python == self._python else None
        if (facts, interpreter) != (self._state.facts, self._state.interpreter):
            self._store.update(replace(self._state, facts=facts, interpreter=interpreter))
        if python == self._python:
            return
        # The versions come first, as they are read without importing a package and are enough for most rules. Until
        # they are there nothing can be launched, because recommended values may still change.
        self._python = python
        for versions_only in (True, False):
            interpreter = await to_daemon_thread(partial(self._backend.probe_interpreter, python, versions_only))
            if self._python != python:  # the job has changed meanwhile
                return
            self._store.update(replace(self._state, interpreter=interpreter))

    async def _check_file(self, config: TrainingConfig) -> None:
        """Show what keeps the file that was opened from training here, once machine and interpreter are known."""
        await self._store.ready.wait()
        inventory, interpreter = self._state.inventory, self._state.interpreter
        if inventory is None or interpreter is None:
            return
        lacking = await to_daemon_thread(lambda: self._backend.file_findings(config, inventory, interpreter))
        if lacking and self._state.loaded is config:
            self._store.update(replace(self._state, loaded=replace(config, lacking=lacking)))

    # settings

    def edit(self, name: str, text: str) -> None:
        try:
            self._store.update(self._state.with_edit(name, text))
        except FieldError as error:
            self._app.show_note(str(error), severity="error")

    def preview_edit(self, name: str, text: str | None) -> None:
        """Show the memory of a value that is being typed; None, or a value that is not valid, restores the figure."""
        state = self._state
        if text is not None:
            with suppress(FieldError):
                state = state.with_edit(name, text)
        self._store.request_estimate(state)

    async def action_fit(self) -> None:
        """Take the largest micro batch that fits by the estimate and keeps the effective batch, and say so.

        Where that is all of the effective batch already, ask whether that may grow; where it is not known, offer to
        tune.
        """
        outlook, editing, unknown = self._store.outlook, self._state.editing, self._state.unknown_values
        if outlook is None or editing is None:
            self._app.show_note("The memory is still being estimated.", "warning")
            return
        settings, most = editing.current.settings, outlook.largest
        micro, accumulation = settings.per_device_train_batch_size, settings.gradient_accumulation_steps
        split = BatchSplit(micro, accumulation, self._state.data_parallel.processes)
        if most is None or split.change.keys() & unknown:
            unmeasured = outlook.unknown or "it takes two runs with different micro batches to see how it grows"
            why = "a run shows the batch of this command first" if most else unmeasured
            unknown_batch = why if why.startswith("unknown") else f"unknown: {why}"
            question = f"The largest micro batch that fits is {unknown_batch}. Measure it with short runs?"
            if await self._app.ask(ConfirmScreen("Fit batch", question, "tune")):
                await self._app.run_action("do('tune')")
            return
        if most < 1:
            doubtful = "even a micro batch of 1 may not fit" if micro == 1 else "only a micro batch of 1 may fit"
            fits = "not even a micro batch of 1 fits" if outlook.nothing_fits else doubtful
            note = f"By the estimate {fits}{'' if outlook.on_gpu else ' in RAM'}; m shows where the memory goes."
        elif (fitted := await self._largest_split(split, most)) is None:
            return
        elif fitted == split:
            whole = accumulation == 1 and most > micro
            limit = "all of the effective batch; more would fit" if whole else "the largest that fits and keeps it"
            note = f"Effective batch {split.effective:,}: micro batch {micro} is {limit}."
        else:
            changes = ", ".join(self._differences(fitted.change))
            origin = Origin(OriginKind.EDITED, "the largest that fits")
            self._store.update(self._state.with_changes(fitted.change, origin))
            batches = f"effective batch {split.effective:,} → {fitted.effective:,}"
            kept = "the effective batch stays" if split.effective == fitted.effective else batches
            note = f"{changes}: {kept}. The estimate has room for {most:,}; u undoes it."
        self._app.show_note(note)

    async def _largest_split(self, split: BatchSplit, most: int) -> BatchSplit | None:
        """Return the batch with the largest micro batch up to `most`; None if the effective batch is not to grow."""
        micro, accumulation = split.micro, split.accumulation
        fitted = rebalance(micro, accumulation, split.processes, min(most, micro * accumulation))
        estimate = None if self._store.outlook is None else self._store.outlook.estimate
        samples = MAX_EFFECTIVE_BATCH * MIN_STEPS if estimate is None or estimate.samples is None else estimate.samples
        # What fits may be all of the data, but training still needs steps.
        useful = min(most, MAX_EFFECTIVE_BATCH // split.processes, samples // MIN_STEPS)
        larger = replace(split, micro=1 << max(0, useful.bit_length() - 1))
        if fitted != split or larger.micro <= micro or accumulation > 1:
            return fitted
        question = (
            f"Micro batch {micro} is the whole effective batch already.\n"
            f"By the estimate up to {most:,} would fit; take {larger.micro}, so that an epoch still has many steps?\n"
            f"Effective batch {split.effective:,} → {larger.effective:,}; the learning rate stays."
        )
        return larger if await self._app.ask(ConfirmScreen("Fit batch", question, "take it")) else None

    def action_undo(self) -> None:
        self._go_back(self._state.with_undo(), "ctrl+r redoes it")

    def action_redo(self) -> None:
        self._go_back(self._state.with_redo(), "u undoes it")

    def _go_back(self, state: UiState, how: str) -> None:
        """Show an earlier or later state; if another preset or command was shown then, say which."""
        from tuner_tui.tuning.create import tuning_title  # needed rarely

        loaded = filter(None, (self._state.loaded, state.loaded))
        titles = [tuning_title(shown.preset, shown.job) for shown in loaded]
        self._go_to(state)
        if len(set(titles)) > 1:
            self._app.show_note(f"These are the settings of {titles[-1]}; {how}.")

    def _go_to(self, state: UiState) -> None:
        """Show another state; if its job is another, find out what trains it."""
        before, loaded = self._state.loaded, state.loaded
        self._store.update(state)
        if loaded is not None and before is not None and loaded.job != before.job:
            self._app.run_task(self.read_job, loaded.job)

    # remedies

    def apply_remedy(self, finding: Finding, remedy: Remedy) -> None:
        self._go_to(self._state.with_remedy(finding, remedy))
        if not remedy.change:
            self._app.show_note(f"{remedy.title}: set for the next run; e shows it.")
            return
        next_key = "R restarts this run with it" if self._state.running else "t tries it"
        changed = "; ".join(filter(None, (remedy.title, remedy.batch_note)))
        self._app.show_note(f"{changed}\nApplied. {next_key}; u undoes it.")

    def action_take_back(self) -> None:
        remedies, changes = self._state.remedies, ", ".join(map(str, self._state.changes_taken_back))
        if not remedies:
            self._app.show_note("This run started without a remedy; u undoes changes for the next run.")
        elif not changes:
            self._app.show_note(f"The settings are already those before {remedies[0].title}.")
        else:
            failed = any("oom" in remedy.cause for remedy in remedies)
            warning = f" {remedies[0].run} ran out of memory with that." if failed else ""
            self._go_to(self._state.with_remedies_taken_back())
            note = f"Undone: {changes}.{warning} t tries it; u undoes it."
            self._app.show_note(note, "warning" if failed else "information")

    async def show_diff(self, finding: Finding, remedy: Remedy) -> None:
        when = "to the next run; R restarts this one with it" if self._state.running else "to the next run"
        if await self._app.ask(DiffScreen(remedy, self._state.changes_by(remedy), when)):
            self.apply_remedy(finding, remedy)

    # job

    def action_gpus(self) -> None:
        """Train with the next number of processes, one on each GPU: 1, 2, 4 … and all of them."""
        if self._state.loaded is None:
            return
        job, most = self._state.loaded.job, startable_gpus(self._state)
        if most < 2:
            starts = most == 0 and self._state.inventory is not None and self._state.inventory.gpus
            why = "The command starts its processes itself" if starts else "There is no second GPU to train on"
            self._app.show_note(f"{why}; e shows how it is started.")
            return
        counts = sorted({most, *(2**n for n in range(most.bit_length()))})
        number = next((count for count in counts if count > job.processes), 1)
        launcher = "plain" if number == 1 else "torchrun" if job.launcher == "plain" else job.launcher
        job = replace(job, processes=number, launcher=launcher)
        self._go_to(self._state.with_job(job))
        view = self._store.settings_view(self._state)
        parts = processes_text(self._state), "" if view is None else effective_batch(view, 60)
        self._app.show_note(f"{'; '.join(filter(None, parts))}. u undoes it.")

    async def action_job(self) -> None:
        from tuner_tui.ui.screens.job import JobScreen  # opened rarely

        if self._state.loaded is not None:
            job = await self._app.ask(JobScreen(self._state.loaded.job, self._preview))
            if job is not None:
                self._go_to(self._state.with_job(job))

    async def _preview(self, job: Job) -> str:
        """Return what is wrong with a start of `job`, its command, and which settings do not reach it."""
        state = self._state.with_job(job)
        config, view = state.current, self._store.settings_view(state)
        if config is None:
            return ""
        try:
            lines = dict((await to_daemon_thread(lambda: self._backend.offer_launch(config))).lines)
        except BackendError as error:
            return str(error)
        words = {
            "Problem": None if view is None else " ".join(problem.sentence for problem in view.problems),
            "Starts": lines.get("Command"),
            "Injected": lines.get("Injected"),
            "Not applied": lines.get("Not applied"),
        }
        return "\n".join(f"{label}: {text}" for label, text in words.items() if text)

    # presets

    async def action_presets(self) -> None:
        """Ask for a preset and load it; what each needs here is filled in as soon as machine and Python are known."""
        current = None if self._state.loaded is None else self._state.loaded.preset
        inventory = self._state.inventory
        listed = await to_daemon_thread(lambda: self._backend.list_presets(inventory))
        screen = PresetScreen(*preset_table(listed, self._app.size.width, current, self._differences))
        judged = None if inventory is None else listed
        name = await self._ask_while(screen, self._judge_presets, screen, current, judged)
        if name is not None:
            self.load(await to_daemon_thread(lambda: self._backend.load_preset(name)), name)

    async def _judge_presets(
        self, screen: PresetScreen, current: str | None, listed: Sequence[PresetEntry] | None
    ) -> None:
        await self._store.ready.wait()
        inventory, interpreter = self._state.inventory, self._state.interpreter
        if inventory is None or interpreter is None:
            return
        presets = listed
        if presets is None:
            presets = await to_daemon_thread(lambda: self._backend.list_presets(inventory))
        outlooks = await to_daemon_thread(lambda: self._backend.preset_outlooks(presets, inventory, interpreter))
        unused = bool(inventory.gpus) and RuleContext(interpreter=interpreter).cpu_build
        screen.show(*preset_table(presets, self._app.size.width, current, self._differences, outlooks, unused))

    def _differences(self, values: Mapping[str, Value]) -> list[str]:
        """What `values` would change of the settings shown: `micro batch 8 → 16`, `micro batch 16` of none."""
        return list(map(str, self._state.changes_to(values)))

    async def choose(self, name: str) -> None:
        spec = FIELDS[name]
        current = self._state.current
        now = None if current is None else getattr(current.resolved.settings, name)
        options = ([("–", "")] if spec.optional else []) + [(choice, choice) for choice in spec.choices]
        items = [PickerItem(label, "current" if text == (now or "") else "", text) for label, text in options]
        selected = next((at for at, item in enumerate(items) if item.about), 0)
        picked = await self._app.ask(PickScreen(spec.label, items, "", selected))
        if picked is not None:
            self.edit(name, picked)

    async def action_save(self) -> None:
        current = self._state.current
        update = None if current is None else await to_daemon_thread(lambda: self._backend.update_of_file(current))
        if update is not None:
            await self._write(update)
        elif current is not None and current.preset:
            await self._save(current.preset)
        else:
            await self.action_save_as()

    async def _write(self, update: FileUpdate) -> None:
        """Show what the settings change in the training tool's file, and write it after a yes."""
        left_out = "\n".join(f"Left out: {why}" for why in update.left_out)
        if not update.diff:
            self._app.show_note(f"{update.path} has these values already.\n{left_out}".rstrip())
        elif await self._app.ask(ConfirmScreen("Write the file", f"{update.diff}{left_out}", "write")):
            await to_daemon_thread(lambda: self._backend.write_file(update))
            self._store.update(self._state.with_saved(str(update.path)))
            self._app.show_note(f"Written to {update.path}.")

    async def action_copy(self) -> None:
        """Put the training tool's file with the settings on the clipboard, or they as the job's tool spells them."""
        current = self._state.current
        if current is None:
            return
        description, text = await to_daemon_thread(lambda: self._backend.export_settings(current))
        if self._app.copy_text(text):
            self._app.show_note(f"Copied {description}, if the terminal allows it (tmux: set -g allow-passthrough on).")
        else:
            self._app.show_note("Not copied: the terminal has no clipboard access, or the text is too long.")

    async def action_memory(self) -> None:
        request = estimate_request(self._state)
        if request is None:
            self._app.show_note("The machine and its Python are still being read.")
            return
        screen = MemoryScreen()
        await self._ask_while(screen, self._read_parts, request, screen)

    async def _read_parts(self, request: EstimateRequest, screen: MemoryScreen) -> None:
        try:
            screen.parts = await to_daemon_thread(lambda: self._backend.memory_parts(request))
        except BackendError:
            screen.dismiss()
            raise

    async def action_save_as(self) -> None:
        now = self._state.loaded.preset if self._state.loaded else None
        about = "Name: letters, digits, dot, dash, underscore"
        name = await self._app.ask(NameScreen("Save as", now or "", preset_name_problem, about))
        if name is not None:
            await self._save(name)

    async def _save(self, name: str) -> None:
        current = self._state.current
        if current is None:
            return
        try:
            await to_daemon_thread(lambda: self._backend.save_preset(name, current, False))
        except NameTakenError as taken:
            yes = "save a copy" if taken.shipped else "replace"
            if not await self._app.ask(ConfirmScreen("Save", str(taken), yes)):
                return
            await to_daemon_thread(lambda: self._backend.save_preset(name, current, True))
        self._store.update(self._state.with_saved(name))
        self._app.show_note(f"Saved as {name}.")


def preset_name_problem(name: str) -> str | None:
    """Return what is wrong with the name of a preset, or None."""
    try:
        preset_path(name)
    except PresetError as error:
        return f"{error}."
    return None


READING_GROUP, FITTING_GROUP, UNFIT_GROUP = "checking what fits …", "fits this machine", "not for this machine as it is"
UNMEASURED_GROUP = "made for such a GPU; no estimate before a run"
UNUSED_GROUP, MEASURED_GROUP = "would fit the GPU (this PyTorch is CPU-only)", "measured on other machines"
PRESET_GROUPS = (
    "yours", READING_GROUP, FITTING_GROUP, UNMEASURED_GROUP, UNFIT_GROUP, MEASURED_GROUP, "cannot be read",
)  # fmt: skip
WIDEST, SCROLL_BAR = 100, 2
PRESET_COLUMNS = ("method", "peak / free memory (! tight)", "time here", "")


def preset_table(
    presets: Sequence[PresetEntry],
    width: int,
    current: str | None,
    differences: Callable[[Mapping[str, Value]], Sequence[str]],
    outlooks: Mapping[str, PresetOutlook] | None = None,
    unused_gpus: bool = False,
) -> tuple[str, list[PickerItem[str]]]:
    """Return the columns that fit on a screen of `width`, and presets as items by group, the `current` one first.

    Memory and time are those on this machine, by `outlooks`, which are None while they are read; with `unused_gpus`
    they are those of GPUs that the PyTorch there cannot use. The detail of each is what it says of itself, what its
    values change, by `differences`, and the source of its figures. A preset that cannot be loaded cannot be picked and
    says why.
    """
    if not presets:
        return "", []
    judged = outlooks or {}
    memory = READING if outlooks is None else ""
    rows = [PRESET_COLUMNS, *(_preset_figures(preset, current, judged.get(preset.name), memory) for preset in presets)]
    # Until a run was measured here no time is known.
    columns = [column for column in zip(*rows, strict=True) if not {*column[1:]} <= {UNKNOWN, ""}]
    name_width = max(len(preset.name) for preset in presets)
    room = min(WIDEST, int(width * DIALOG_SHARE)) - DIALOG_FRAME - SCROLL_BAR - name_width
    # Memory, or what is missing here, is why the list is opened: it stays where there is room for a single column.
    kept = [*(columns[:count] for count in range(len(columns), 1, -1)), columns[1:2]]
    tables = [format_table(list(zip(*parts, strict=True))) for parts in kept]
    head, *lines = next((table for table in tables if max(map(len, table)) <= room), tables[-1])
    items = [
        _preset_item(preset, line, differences, _preset_group(preset, judged.get(preset.name), outlooks is None))
        for preset, line in zip(presets, lines, strict=True)
    ]
    items.sort(key=lambda item: (PRESET_GROUPS.index(item.group), item.value != current))
    if unused_gpus:
        items = [replace(item, group=UNUSED_GROUP) if item.group == FITTING_GROUP else item for item in items]
    return head, items


def _preset_item(
    preset: PresetEntry, line: str, differences: Callable[[Mapping[str, Value]], Sequence[str]], group: str
) -> PickerItem[str]:
    if preset.loaded is None:
        problem = (preset.problem or "").replace(f"{preset.path.parent}/", "")  # the list is narrow
        return PickerItem(preset.name, problem.partition("\n")[0], preset.name, detail=problem, group=PRESET_GROUPS[-1])
    changes = " · ".join(differences(preset.loaded.preset.settings)) or "changes no setting"
    source = " ".join((preset.loaded.preset.source or "").split())
    detail = "\n".join(filter(None, (preset.about, changes, source and f"source: {source}")))
    return PickerItem(preset.name, line, preset.name, detail=detail, group=group)


def _preset_group(preset: PresetEntry, outlook: PresetOutlook | None, reading: bool) -> str:
    if preset.yours or reading:
        return "yours" if preset.yours else READING_GROUP
    if preset.loaded is not None and is_measured(preset.loaded.preset):
        return MEASURED_GROUP
    verdict = None if outlook is None or outlook.memory.estimate is None else outlook.memory.estimate.verdict
    if outlook is not None and (outlook.lacks or verdict == "too large"):
        return UNFIT_GROUP
    return FITTING_GROUP if verdict in ("fits", "tight") else UNMEASURED_GROUP


def _preset_figures(
    preset: PresetEntry, current: str | None, outlook: PresetOutlook | None, memory: str
) -> tuple[str, ...]:
    """Return the columns of a preset: method, peak memory, time and marks; without an outlook `memory` is shown.

    Of one that is not for this machine stands there what it lacks.
    """
    values = {} if preset.loaded is None else preset.loaded.preset.settings
    method = training_method(values.get("peft_method"), values.get("quantization"))
    marks = (
        "current" if preset.name == current else "",
        "replaces the shipped one" if preset.hides_shipped else "",
        "for this machine" if preset.suits else "",
    )
    marked = ", ".join(filter(None, marks))
    if outlook is None:
        return method, memory, "", marked
    estimate, duration = outlook.memory.estimate, outlook.memory.duration
    requirements = None if preset.loaded is None else preset.loaded.preset.for_
    needs = "" if requirements is None else requirements.gpu_text()
    memory = f"  made for {needs}" if needs else "  unknown"
    if outlook.lacks:
        memory = "  only without a GPU" if outlook.lacks == NO_GPU else f"  needs {outlook.lacks}"
    elif estimate is not None:
        memory = f"{VERDICTS[estimate.verdict][0]} {figures_of(estimate)} {outlook.memory.against}".rstrip()
    time = UNKNOWN if duration is None or duration.range_s is None else summarise_duration(duration)
    time = UNKNOWN if time == VARIED else time
    return method, memory, time, marked
