"""Everything the screen asks of the rest of the program, in one class.

It is imported after the first frame, which does not wait for YAML and NVML.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs
from msgspec.json import encode

from tuner_tui.advice.batch_scaling import effective_batch_note
from tuner_tui.advice.estimate import EstimateRequest, MemoryEstimator, PeakMemory
from tuner_tui.advice.file_checks import file_findings, loaded_file_checks
from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.preflight import environment_findings
from tuner_tui.advice.recommend.recommendation import with_recommended
from tuner_tui.advice.recommend.target import free_bytes, target_of
from tuner_tui.advice.situation import observed_values, situation_of_state
from tuner_tui.core.files import make_private, write_atomic, write_durable
from tuner_tui.core.ownership import sharing_problem
from tuner_tui.hardware.detect import read_inventory
from tuner_tui.hardware.environment import visible_gpus
from tuner_tui.hardware.interpreter import Interpreter, probe_interpreter, probe_versions
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.hardware.known_gpus import planned_interpreter
from tuner_tui.hardware.sample import Sample
from tuner_tui.hardware.sampler import Sampler, open_sampler
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.launch.command import LaunchError, builtin_packages, check_unshared
from tuner_tui.runs.launch.launchers import training_python
from tuner_tui.runs.launch.orders import give_order
from tuner_tui.runs.launch.prepare import LaunchRequest, launch_summary, prepare
from tuner_tui.runs.launch.restart import RestartPlan, plan_restart, restart
from tuner_tui.runs.launch.start import adopt, launch
from tuner_tui.runs.queue.gpu_occupancy import shortage_by
from tuner_tui.runs.queue.listing import QueueLine, list_queue
from tuner_tui.runs.queue.queued_run import QueuedRun, revive_waiter
from tuner_tui.runs.queue.submission import enqueue, queue_need
from tuner_tui.runs.read.reader import Readers, RunReader, RunRow, list_run_or_damage
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import Order, RunFolder, list_runs, runs_dir, state_dir
from tuner_tui.runs.store.record import RunRecord, read_record, readable_record
from tuner_tui.runs.store.remedy_outcomes import recorded_verdict
from tuner_tui.runs.supervise.run_processes import ProcessSnapshot
from tuner_tui.settings.command_training import CommandTraining, may_use_trainer, read_command
from tuner_tui.settings.dialects.dialect import HF, dialect_by_name
from tuner_tui.settings.dialects.file_formats import render_export
from tuner_tui.settings.dialects.settings_writer import write_settings
from tuner_tui.settings.distributed import read_accelerate_config
from tuner_tui.settings.edit_history import EditHistory
from tuner_tui.settings.file_update import FileUpdate, update_tool_file
from tuner_tui.settings.job import OF_RUNTIME, BuiltinJob, Job
from tuner_tui.settings.model import FIELDS, Resolved, Settings
from tuner_tui.settings.preset_file import Preset, save_preset
from tuner_tui.settings.presets import PresetEntry, is_shipped, list_presets, load_preset, preset_path, suiting_first
from tuner_tui.settings.resolve import LaunchOptions, resolve, resolve_training
from tuner_tui.settings.rules import RuleContext
from tuner_tui.tuning.store import list_tunings, tunings_dir
from tuner_tui.ui.drafts import Draft, draft_path, read_draft
from tuner_tui.ui.records import (
    DEMO,
    JobFacts,
    LaunchOffer,
    NameTakenError,
    PresetOutlook,
    TrainingConfig,
    translate_errors,
    translates_errors,
)
from tuner_tui.ui.report_file import render_report
from tuner_tui.ui.tunings import Tunings
from tuner_tui.view.settings_form import KNOBS
from tuner_tui.view.tuning_rows import changes_between

if TYPE_CHECKING:
    from tuner_tui.inspection.first_non_finite import Replay
    from tuner_tui.runs.read.live_inspection import RunProfile
    from tuner_tui.runs.supervise.stall import Inspection
    from tuner_tui.ui.followed_run import FollowedRun
    from tuner_tui.view.comparison_rows import ComparisonScene
    from tuner_tui.view.end_card import EndScene

MAX_RECENT_RUNS = 8
MAX_LISTED_RUNS = 200


@translates_errors
@dataclass
class Backend:
    """The rest of the program as seen by the screen.

    Calls may block on files, processes or a driver, so the app makes them on threads. `recommend` and
    `environment_findings` only compute and are called on the event loop.

    The fields hold what the command line and the environment set over any preset: `flags` are the values of `--set`,
    `fallback` is the number of automatic retries after running out of memory, or None for the job's own.
    """

    interpreter: Path | None = None
    flags: Mapping[str, str] | None = None
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    fallback: int | None = None
    estimates: MemoryEstimator = field(default_factory=MemoryEstimator)
    tunings: Tunings = field(default_factory=Tunings)

    recommend = staticmethod(with_recommended)
    environment_findings = staticmethod(environment_findings)

    def memory_parts(self, request: EstimateRequest) -> PeakMemory:
        """Return where the memory goes, by a trace that may take 30 s."""
        return self.estimates.parts(request)

    # presets

    def list_presets(self, inventory: Inventory | None) -> Sequence[PresetEntry]:
        """Return all presets, those made for the machine first, those that cannot be loaded included."""
        entries = list_presets()
        if inventory is None:
            return entries
        return suiting_first(entries, visible_gpus(inventory), inventory.cpu.usable_cores)

    def preset_outlooks(
        self, entries: Sequence[PresetEntry], inventory: Inventory, interpreter: Interpreter
    ) -> Mapping[str, PresetOutlook]:
        """Return how each preset that can be read would do on the machine, by name.

        With a torch that is CPU-only they are judged as if it used the GPUs, which is what most presets are for.
        """
        by_room = sorted(inventory.gpus, key=lambda gpu: -(free_bytes(gpu) or 0))  # they may train on the freest
        inventory = structs.replace(inventory, gpus=tuple(by_room))
        gpus, cores = visible_gpus(inventory), inventory.cpu.usable_cores
        if gpus and RuleContext(interpreter=interpreter).cpu_build:
            interpreter = planned_interpreter(interpreter)
        outlooks = {}
        for entry in entries:
            if entry.loaded is None:
                continue
            preset = entry.loaded.preset
            job = preset.job or BuiltinJob()
            resolved = self.recommend(resolve(preset=preset), inventory, interpreter, job)
            memory = self.estimates.quick(EstimateRequest(resolved, job, inventory, interpreter))
            is_estimated = memory.estimate is not None and memory.on_gpu  # better than the memory that a preset names
            lacks = "" if preset.for_ is None else preset.for_.lacking(gpus, cores, is_estimated)
            packages = builtin_packages(resolved.settings) if isinstance(job, BuiltinJob) else ()
            missing = " and ".join(name for name in packages if name not in interpreter.packages)
            outlooks[entry.name] = PresetOutlook(lacks or missing, memory)
        return outlooks

    def load_preset(self, name: str) -> TrainingConfig:
        """Return the preset `name` with tuner.yaml, environment and flags applied."""
        default = BuiltinJob()
        training = resolve_training(
            LaunchOptions(name, self.flags or {}, self.environment or {}, default_job=default, fallback=self.fallback)
        )
        if training.job_file is not None:  # the Python that it names is asked as soon as it is shown
            check_unshared(training.job_file)
        job = self._with_interpreter(training.job or default)
        base = None if training.loaded is None else training.loaded.preset
        return TrainingConfig(training.resolved, job, name, base=base, notes=training.notes)

    def save_preset(self, name: str, config: TrainingConfig, overwrite: bool) -> None:
        """Save the chosen settings and the job; recommended values are left out, as they depend on the machine.

        Raises `NameTakenError` for a name that is taken, also by a preset of the program, unless `overwrite`.
        """
        base, job, python = config.base or Preset(name=name), config.job, self.interpreter
        if python is not None and job.interpreter == str(python):
            # A flag holds for this session only.
            job = structs.replace(job, interpreter=None if base.job is None else base.job.interpreter)
        preset = structs.replace(base.variant(name, config.resolved.given), job=job)
        path = preset_path(name)
        if not overwrite and is_shipped(path.stem) and not path.exists():
            question = f"{path.stem} comes with tuner-tui. Save your own copy? It will be used instead."
            raise NameTakenError(question, shipped=True)
        save_preset(preset, path, overwrite=overwrite)

    def update_of_file(self, config: TrainingConfig) -> FileUpdate | None:
        """Return what the settings change in the training tool's file that they come from; None if they do not."""
        path = Path(config.preset or "")
        if not path.is_file() or load_preset(path).dialect is None:
            return None
        given = config.resolved.given
        return update_tool_file(path, config.resolved.settings, given, despite_auto=given)

    def file_findings(
        self, config: TrainingConfig, inventory: Inventory, interpreter: Interpreter
    ) -> tuple[Finding, ...]:
        """Return what keeps the training tool's file or script that was opened from training here."""
        path = Path(config.preset or "")
        if config.as_it_ran or not path.is_file():
            return ()
        return file_findings(loaded_file_checks(load_preset(path), config.resolved, config.job, inventory, interpreter))

    def write_file(self, update: FileUpdate) -> None:
        write_durable(update.path, update.content, overwrite=True)

    def export_settings(self, config: TrainingConfig) -> tuple[str, str]:
        """Return what is exported, and its text: the training tool's file with the settings, or they in its words."""
        update = self.update_of_file(config)
        if update is not None:
            return update.path.name, update.after
        tool = dialect_by_name(config.job.dialect if config.job.kind == "command" else HF)
        carried = write_settings(tool, config.resolved.settings, None, config.resolved.chosen)
        return f"the settings for {tool.tool}", render_export(tool, carried)

    def read_draft(self, config: TrainingConfig) -> Draft:
        """Return the unsaved changes that were left the last time that `config` was open."""
        return read_draft(draft_path(state_dir() / "drafts", config))

    def keep_draft(self, config: TrainingConfig, draft: Draft) -> None:
        """Keep unsaved changes for the next time that `config` is open; an empty draft takes away the last one."""
        path = draft_path(state_dir() / "drafts", config)
        if not draft:
            path.unlink(missing_ok=True)
            return
        make_private(path.parent)
        write_atomic(path, encode(draft).decode())

    def _with_interpreter(self, job: Job) -> Job:
        return job if self.interpreter is None else structs.replace(job, interpreter=str(self.interpreter))

    # machine and interpreter

    def read_inventory(self) -> Inventory:
        return read_inventory(state_dir())

    def read_job(self, job: Job) -> JobFacts:
        """Find the Python that trains `job`, and read the files that its command names and its runs here."""
        cwd = job.cwd if job.kind == "command" else None
        python = training_python(job, os.environ, Path(Path.cwd(), cwd or ""))
        training = read_command(job.command, Path(cwd or ""), job.env) if job.kind == "command" else CommandTraining()
        # Only of a Trainer it is known that it does not evaluate unless it was told to.
        is_trainer = job.kind == "command" and may_use_trainer(job.command, Path(cwd or ""))
        values = training.in_effect if is_trainer else training.settings
        sources = {name: "default" for name in values if name not in training.settings} | {**training.sources}
        accelerate, earlier = read_accelerate_config(job, os.environ, Path.cwd()), self.estimates.earlier_runs(job)
        return JobFacts(python, accelerate, values, sources, earlier)

    def probe_interpreter(self, python: Path, versions_only: bool) -> Interpreter:
        """Ask `python` for the versions of its packages, or for everything, which may take seconds."""
        return probe_versions(python) if versions_only else probe_interpreter(python)

    def open_sampler(self) -> Sampler:
        """Open the drivers; they may take seconds to answer."""
        return open_sampler(Path.cwd())

    # runs

    def open_run(self, folder: Path, shown: TrainingConfig | None = None) -> TrainingConfig:
        """Return settings and job of a run; `shown`, or the demo, if its record cannot be read or is another user's.

        Where the run trains the job shown, this one is kept: it has the secrets that the record hides.
        """
        record = readable_record(RunFolder(folder))
        if record is None or sharing_problem(folder) is not None:
            return shown or self.load_preset(DEMO)
        return TrainingConfig(
            record.resolved,
            shown.job if shown is not None and shown.trains(record.job) else self._with_interpreter(record.job),
            record.preset,
            as_it_ran=True,
            cwd=Path(record.cwd) if getattr(record.job, "cwd", None) is None else None,
            memory_limit_bytes=record.memory_limit_bytes,
        )

    def offer_launch(self, config: TrainingConfig) -> LaunchOffer:
        """Prepare a run; nothing is started yet."""
        prepared = prepare(config.launch_request())
        start: Callable[[], Path] = translate_errors()(lambda: launch(prepared).path)
        # The command of the built-in job is not one that the user has written.
        lines = [line for line in launch_summary(prepared) if config.job.kind == "command" or line[0] != "Command"]
        return LaunchOffer("", [*_changes_since_last(config), *lines], start)

    def offer_restart(self, folder: Path, config: TrainingConfig | None) -> LaunchOffer:
        """Plan a restart of the run, with the settings of `config` if it trains the same job.

        Without a checkpoint it starts at step 0. Raises `BackendError` if the run cannot be restarted.
        """
        run = RunFolder(folder)
        record = read_record(run)
        completed = read_status(run).outcome == "completed"
        shown = config if config is not None and config.trains(record.job) else None
        if completed and (shown is None or _length(shown) == _length(record)):
            raise LaunchError(f"{run.id} has completed. Raise epochs or max steps to continue it; t starts a new run.")
        resolved, job = (None, None) if shown is None else (shown.resolved, shown.job)
        plan = plan_restart(run, resolved=resolved, job=job, allow_from_scratch=not completed)
        return _restart_offer(plan, RunReader(run).poll().state, record)

    def offer_retry(self, folder: Path, remedy: Remedy, cause: str, config: TrainingConfig | None) -> LaunchOffer:
        """Plan to start the ended run again with `remedy`, from its last checkpoint, or from step 0 without one.

        `config` is the training shown, whose command holds the secrets that the record hides.
        """
        run = RunFolder(folder)
        record = read_record(run)
        state = RunReader(run).poll().state
        # All are new values: those of the record may only be defaults, where the command brought others itself.
        job = config.job if config is not None and config.trains(record.job) else None
        origin = remedy.origin(cause, run.id, _settings_of_run(state, record), (job or record.job).env)
        resolved = EditHistory.of(record.resolved).apply(remedy.change, origin, unknown=remedy.change).current
        if remedy.env and origin.remedy is not None:
            job = remedy.applied_to(job or record.job)
            resolved = structs.replace(resolved, env_remedies=(origin.remedy,))
        return _restart_offer(plan_restart(run, resolved=resolved, job=job, allow_from_scratch=True), state, record)

    def write_report(self, scene: EndScene, name: str) -> Path:
        """Write the report of a run that has ended to a new file, of the kind that its ending says."""
        path = Path(name).expanduser().absolute()
        write_durable(path, render_report(scene, path.suffix).encode(), overwrite=False)
        return path

    def list_runs(self) -> Sequence[RunRow]:
        snapshot, now_s = ProcessSnapshot(), time.time()
        return [list_run_or_damage(folder, now_s, snapshot) for folder in list_runs(runs_dir())[:MAX_LISTED_RUNS]]

    def watch_recent(self) -> Iterator[tuple[RunRow, ...]]:
        """Yield the newest runs, live ones first, without those of a tuning; reads one that has ended only once.

        Raises `OSError`.
        """
        ended: dict[Path, RunRow] = {}
        readers: Readers = {}
        while True:
            snapshot, now_s = ProcessSnapshot(), time.time()
            rows = []
            for folder in list_runs(runs_dir())[:MAX_RECENT_RUNS]:
                row = ended.get(folder.path) or list_run_or_damage(folder, now_s, snapshot, readers)
                if row.status == "ended":
                    ended[folder.path] = row
                    readers.pop(folder.path, None)
                age_s = None if row.created_t is None else max(0.0, now_s - row.created_t)
                rows += [] if row.tuning else [structs.replace(row, age_s=age_s, remedy=recorded_verdict(row.run))]
            yield tuple(sorted(rows, key=lambda row: row.pid is None))

    def compare_runs(self, first: Path, second: Path) -> Iterator[ComparisonScene]:
        """Yield the comparison of two runs, one per read, until neither of them is live. Raises `OSError`."""
        from tuner_tui.ui.followed_run import compare_runs  # diagnosis is imported when a run is shown

        return compare_runs(RunFolder(first), RunFolder(second))

    def adopt_run(self, folder: Path) -> None:
        """Start a new supervisor for a run that lost its own while the training lives; leave other runs alone."""
        status = read_status(RunFolder(folder))
        if status.kind == "lost" and status.training_alive:
            adopt(RunFolder(folder))

    def follow_run(self, folder: Path) -> FollowedRun:
        from tuner_tui.ui.followed_run import follow_run

        return follow_run(RunFolder(folder))

    def send_order(self, folder: Path, order: Order) -> None:
        give_order(RunFolder(folder), order)

    def inspect_run(self, folder: Path) -> Inspection:
        """Ask the processes of a run where they are; takes two seconds at most."""
        from tuner_tui.runs.read.live_inspection import inspect_folder  # asked rarely, and half a megabyte

        return inspect_folder(RunFolder(folder))

    def profile_run(self, folder: Path) -> RunProfile:
        """Profile ten steps of a run; takes as long as some thirty steps."""
        from tuner_tui.runs.read.live_inspection import PROFILED_STEPS, profile_folder

        return profile_folder(RunFolder(folder), PROFILED_STEPS)

    def replay_run(self, folder: Path) -> Replay:
        """Train the steps before a loss that is not finite again, from the newest checkpoint before it."""
        from tuner_tui.tuning.replayed_run import replay_run

        return replay_run(RunFolder(folder))

    # queue

    def list_queue(self) -> tuple[QueueLine, ...]:
        return list_queue(runs_dir())

    def mark_opened(self) -> None:
        """Keep the time at which a screen was opened last."""
        with suppress(OSError):  # nothing can be written there
            make_private(_opened_marker().parent)
            _opened_marker().touch()

    def tuning_to_open(self) -> Path | None:
        """Return the newest tuning if it runs, or has ended since a screen was opened the last time."""
        newest = next(iter(list_tunings(tunings_dir(os.environ))), None)
        shown = newest is not None and (newest.live or not was_opened_since(newest.trials))
        return newest.path if newest is not None and shown else None

    def wake_queue(self) -> None:
        """Start the process that starts waiting runs again where it was killed."""
        revive_waiter(runs_dir())

    def shortage(
        self, config: TrainingConfig, inventory: Inventory, interpreter: Interpreter | None, sample: Sample | None
    ) -> str:
        """Return which live runs the training of `config` would wait for in the queue; empty if for none."""
        need = _queue_need(config.launch_request(), inventory, interpreter)
        return shortage_by(runs_dir(), need, inventory.gpus, sample)

    def offer_queueing(
        self, config: TrainingConfig, inventory: Inventory | None, interpreter: Interpreter | None
    ) -> LaunchOffer:
        """Prepare the training of `config` for the queue; nothing is queued yet."""
        request = config.launch_request()
        inventory = inventory or read_inventory(request.runs_root)
        need = _queue_need(request, inventory, interpreter)
        prepared = prepare(request)
        gpus = f"{need.gpus} of {len(need.allowed)} GPUs" if need.gpus else "the CPU"

        @translate_errors()
        def start() -> Path:
            folder = enqueue(prepared, need).path
            self.wake_queue()
            return folder

        return LaunchOffer("", [*launch_summary(prepared), ("Waits for", gpus)], start)


def _queue_need(request: LaunchRequest, inventory: Inventory, interpreter: Interpreter | None) -> QueuedRun:
    on_gpu = target_of(inventory, interpreter, request.job).on_gpu
    return queue_need(request, inventory, None if on_gpu else 0)


def _opened_marker() -> Path:
    """The file whose time is that of the last start of a screen."""
    return runs_dir().with_name("opened")


def was_opened_since(written: Path) -> bool:
    """Return whether a screen was opened since that file was written."""
    with suppress(OSError):
        return written.stat().st_mtime <= _opened_marker().stat().st_mtime
    return False


def _changes_since_last(config: TrainingConfig) -> Iterator[tuple[str, str]]:
    """Yield the newest run of the same training, and what is set in another way now."""
    for folder in list_runs(runs_dir())[:MAX_LISTED_RUNS]:
        record = readable_record(folder)
        if record is not None and record.tuning is None and config.trains(record.job):
            before = _settings_of_run(RunReader(folder).poll().state, record)
            changes = changes_between(before, _changed_settings(before, record, config.resolved))
            yield f"Since {record.id}", changes or "the same settings"
            return


def _length(training: TrainingConfig | RunRecord) -> tuple[float, int | None]:
    """Return what decides when a training is complete."""
    settings = training.resolved.settings
    return settings.num_train_epochs, settings.max_steps


def _restart_offer(plan: RestartPlan, state: RunState, record: RunRecord) -> LaunchOffer:
    """Return the restart of a run, which is in `state`."""
    before = _settings_of_run(state, record)
    env = plan.request.job.env.items() - record.job.env.items()
    set_now = [f"{name}={value}" for name, value in sorted(env) if name in OF_RUNTIME]
    changed = _changed_settings(before, record, plan.request.resolved)
    changes = ", ".join(filter(None, (changes_between(before, changed), *set_now)))
    start: Callable[[], Path] = translate_errors()(lambda: restart(plan).path)
    name, lost = plan.folder.id, plan.lost_steps
    if plan.saves:
        stops = "is saving a checkpoint and stopping" if plan.stopping else "saves a checkpoint and stops"
        begin = f"{name} {stops}; a new run continues from there"
    elif plan.checkpoint is None:
        stops = ": it stops, and" if plan.live else ";"
        lacks = (
            "no checkpoint to resume from" if plan.unusable is None else "no known option to resume from its checkpoint"
        )
        begin = f"{name} has {lacks}{stops} a new run starts at step 0"
    else:
        begin = f"a new run continues from the checkpoint of {name} at step {plan.checkpoint.step:,}"
        begin = f"{name} stops; {begin}" if plan.live else f"A{begin[1:]}"
    if lost:
        begin += f"; {lost:,} step{'s are' if lost > 1 else ' is'} repeated"
    manner = f"with {changes or 'the same settings'}"
    discards = plan.live and plan.checkpoint is None and not plan.saves and plan.step
    lines = [("Lost", f"the {plan.step:,} steps so far; there is no checkpoint")] if discards else []
    job, read = plan.request.job, record.resolved.chosen | observed_values(state.in_effect).keys()
    is_batch_known = isinstance(job, BuiltinJob) or read.issuperset(KNOBS[:2])
    if state.replicas is not None and is_batch_known and job.processes == record.job.processes:
        batch = effective_batch_note(before, changed, state.replicas)
        lines += [("Effective batch", batch.removeprefix("effective batch "))] if batch else []
    heading = "" if plan.saves or plan.checkpoint is not None else "Restart"
    return LaunchOffer(f"{begin}, {manner}.", lines, start, heading=heading)


def _settings_of_run(state: RunState, record: RunRecord) -> Settings:
    """Return the settings that a run used: those observed in it where it was given none."""
    return situation_of_state(state, record).settings or record.resolved.settings


def _changed_settings(before: Settings, record: RunRecord, resolved: Resolved) -> Settings:
    """Return `before` with the values of `resolved`."""
    chosen = record.resolved.chosen | resolved.chosen  # others only describe what the command does by itself
    return before.changed(**{name: getattr(resolved.settings, name) for name in FIELDS if name in chosen})
