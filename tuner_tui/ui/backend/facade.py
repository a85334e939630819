"""Everything the screen asks of the rest of the program, in one class.

The screen draws its first frame before pydantic, YAML or NVML is imported: heavy imports stand inside the methods.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from tuner_tui.ui.backend.queue import QueueAccess
from tuner_tui.ui.backend.records import (
    ComparedRuns,
    FollowedRun,
    LaunchOffer,
    NameTakenError,
    PresetListing,
    RestartOffer,
    TrainingConfig,
    translate_errors,
)
from tuner_tui.ui.backend.tunings import Tunings
from tuner_tui.view.run_rows import outcome_sentence

if TYPE_CHECKING:
    from tuner_tui.advice.estimate import MemoryEstimator
    from tuner_tui.advice.finding import Finding
    from tuner_tui.advice.outlook import EstimateRequest, MemoryOutlook, PeakMemory
    from tuner_tui.advice.situation import Situation
    from tuner_tui.hardware.interpreter import Interpreter
    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.hardware.sampler import Sampler
    from tuner_tui.runs.launch.restart import RestartPlan
    from tuner_tui.runs.read.reader import RunRow, RunView
    from tuner_tui.runs.store.record import RunRecord
    from tuner_tui.runs.store.supervisor_state import Order
    from tuner_tui.settings.distributed import AccelerateConfig
    from tuner_tui.settings.job import Job
    from tuner_tui.settings.model import Resolved
    from tuner_tui.settings.presets import FileUpdate


MAX_LISTED_RUNS = 200


@dataclass(frozen=True, slots=True)
class CliOverrides:
    """What the command line and the environment set over any preset.

    `flags` holds the values of `--set`; `fallback` is the number of automatic retries after running out of memory, or
    None for the job's own.
    """

    interpreter: Path | None = None
    flags: Mapping[str, str] | None = None
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    fallback: int | None = None


class Backend:
    """The rest of the program as seen by the screen.

    Calls may block on files, processes or a driver, so the app makes them on threads. Those that can fail raise
    `BackendError`. `recommend` and `environment_findings` only compute and are called on the event loop.
    """

    def __init__(self, overrides: CliOverrides) -> None:
        self._overrides = overrides
        self._estimating = Lock()
        self.tunings = Tunings()
        self.queue = QueueAccess()

    # settings

    @cached_property
    def _estimator(self) -> MemoryEstimator:
        from tuner_tui.advice.estimate import MemoryEstimator

        return MemoryEstimator()

    def recommend(self, resolved: Resolved, inventory: Inventory, interpreter: Interpreter, job: Job) -> Resolved:
        """Fill in recommended values where no value was chosen."""
        from tuner_tui.advice.recommend.recommendation import with_recommended

        return with_recommended(resolved, inventory, interpreter, job)

    def estimate(self, request: EstimateRequest) -> MemoryOutlook:
        """Return the expected memory at once."""
        with self._estimating:
            return self._estimator.quick(request)

    def refine_estimate(self, request: EstimateRequest) -> MemoryOutlook | None:
        """Return a better estimate, which may take 30 s, or None if there is none."""
        with self._estimating:
            return self._estimator.refined(request)

    @translate_errors()
    def memory_parts(self, request: EstimateRequest) -> PeakMemory:
        """Return where the memory goes, by a trace that may take 30 s."""
        return self._estimator.parts(request)

    # presets

    @translate_errors()
    def list_presets(self, inventory: Inventory | None) -> Sequence[PresetListing]:
        """Return all presets, those made for the machine first, those that cannot be loaded included."""
        from tuner_tui.hardware.environment import visible_cards
        from tuner_tui.settings.presets import list_presets, suiting_first

        found = list_presets()
        marked = (
            [(entry, False) for entry in found]
            if inventory is None
            else suiting_first(found, visible_cards(inventory), inventory.cpu.usable_cores)
        )
        return [
            PresetListing(
                entry.name,
                (entry.loaded.preset.about or "") if entry.loaded else "",
                entry.problem,
                suits,
                entry.yours,
                entry.hides_shipped,
                entry.loaded.preset.settings if entry.loaded else {},
            )
            for entry, suits in marked
        ]

    @translate_errors()
    def load_preset(self, name: str) -> TrainingConfig:
        """Return the preset `name` with tuner.yaml, environment and flags applied."""
        from tuner_tui.settings.job import BuiltinJob
        from tuner_tui.settings.resolve import LaunchOptions, resolve_training

        flags, environment = self._overrides.flags or {}, self._overrides.environment or {}
        default, fallback = BuiltinJob(), self._overrides.fallback
        training = resolve_training(LaunchOptions(name, flags, environment, default_job=default, fallback=fallback))
        job = self._with_interpreter(training.job or default)
        return TrainingConfig(training.resolved, job, name, base=training.preset, notes=training.notes)

    @translate_errors()
    def save_preset(self, name: str, config: TrainingConfig, overwrite: bool) -> None:
        """Save the chosen settings and the job; recommended values are left out, as they depend on the machine.

        Raises `NameTakenError` for a name that is taken, also by a preset of the program, unless `overwrite`.
        """
        from tuner_tui.settings.presets import Preset, is_shipped, preset_path, save_preset

        base, job, python = config.base or Preset(name=name), config.job, self._overrides.interpreter
        if python is not None and job.interpreter == str(python):
            # A flag holds for this session only.
            job = job.model_copy(update={"interpreter": None if base.job is None else base.job.interpreter})
        preset = base.variant(name, config.resolved.given).model_copy(update={"job": job})
        path = preset_path(name)
        if not overwrite and is_shipped(path.stem) and not path.exists():
            question = f"{path.stem} comes with tuner-tui. Save your own copy? It will be used instead."
            raise NameTakenError(question, shipped=True)
        save_preset(preset, path, overwrite=overwrite)

    @translate_errors()
    def update_of_file(self, config: TrainingConfig) -> FileUpdate | None:
        """Return what the settings change in the training tool's file that they come from; None if they do not."""
        from tuner_tui.settings.presets import load_preset, update_tool_file

        path = Path(config.preset or "")
        if not path.is_file() or load_preset(path).dialect is None:
            return None
        given = config.resolved.given
        return update_tool_file(path, config.resolved.settings, given, despite_auto=given)

    @translate_errors()
    def write_file(self, update: FileUpdate) -> None:
        from tuner_tui.settings.presets import write_durable

        write_durable(update.path, update.content, overwrite=True)

    @translate_errors()
    def export_settings(self, config: TrainingConfig) -> tuple[str, str]:
        """Return what is exported, and its text: the training tool's file with the settings, or they in its words."""
        from tuner_tui.settings.dialects.dialect import HF, dialect_by_name, write_settings
        from tuner_tui.settings.dialects.file_formats import render_export

        update = self.update_of_file(config)
        if update is not None:
            return update.path.name, update.after
        tool = dialect_by_name(config.job.dialect if config.job.kind == "command" else HF)
        carried = write_settings(tool, config.resolved.settings, None, config.resolved.chosen)
        return f"the settings for {tool.tool}", render_export(tool, carried)

    def _with_interpreter(self, job: Job) -> Job:
        python = self._overrides.interpreter
        return job if python is None else job.model_copy(update={"interpreter": str(python)})

    # machine and interpreter

    def read_inventory(self) -> Inventory:
        """Return the hardware of this machine."""
        # `environment_findings` and `recommend` run on the event loop as soon as this returns: import what they need.
        import tuner_tui.advice.preflight
        import tuner_tui.advice.recommend.recommendation  # noqa: F401
        from tuner_tui.hardware.detect import read_inventory

        return read_inventory(Path.cwd())

    def find_python(self, job: Job) -> tuple[Path, AccelerateConfig | None]:
        """Return the Python that trains `job`, and the configuration file with which accelerate starts it."""
        from tuner_tui.runs.launch.launchers import training_python
        from tuner_tui.settings.distributed import read_accelerate_config

        cwd = job.cwd if job.kind == "command" else None
        python = training_python(job, os.environ, Path(Path.cwd(), cwd or ""))
        return python, read_accelerate_config(job, os.environ, Path.cwd())

    def probe_interpreter(self, python: Path, versions_only: bool) -> Interpreter:
        """Ask `python` for the versions of its packages, or for everything, which may take seconds."""
        from tuner_tui.hardware.interpreter import probe_interpreter, probe_versions

        return probe_versions(python) if versions_only else probe_interpreter(python)

    def open_sampler(self) -> Sampler:
        """Open the drivers; they may take seconds to answer."""
        from tuner_tui.hardware.sampler import open_sampler

        return open_sampler(Path.cwd())

    # findings

    def environment_findings(
        self, inventory: Inventory | None, interpreter: Interpreter | None, job: Job | None
    ) -> tuple[Finding, ...]:
        """Return what is wrong with machine and interpreter, whether or not a run is followed."""
        if inventory is None or interpreter is None:
            return ()
        from tuner_tui.advice.preflight import environment_findings

        return environment_findings(inventory, interpreter, job)

    # runs

    def open_run(self, folder: Path) -> TrainingConfig:
        """Return the settings and the job of a run, or of the demo if its record cannot be read."""
        from tuner_tui.runs.store.folder import RunFolder
        from tuner_tui.runs.store.record import readable_record

        record = readable_record(RunFolder(folder))
        if record is None:
            return self.load_preset("demo")
        return TrainingConfig(
            record.resolved,
            self._with_interpreter(record.job),
            record.preset,
            as_it_ran=True,
            memory_limit_bytes=record.memory_limit_bytes,
        )

    @translate_errors()
    def offer_launch(self, config: TrainingConfig, inventory: Inventory | None = None) -> LaunchOffer:
        """Prepare a run; nothing is started yet. Its lines end with the expected time, where runs or notes tell it."""
        from tuner_tui.runs.launch.prepare import launch_summary, prepare
        from tuner_tui.runs.launch.start import launch

        prepared = prepare(config.launch_request())
        start: Callable[[], Path] = translate_errors()(lambda: launch(prepared).path)
        return LaunchOffer([*launch_summary(prepared), *_expected_time(config, inventory)], start)

    @translate_errors()
    def offer_restart(self, folder: Path, config: TrainingConfig | None) -> RestartOffer:
        """Plan a restart of the run, with the settings of `config` if it trains the same job.

        Raises `BackendError` if the run cannot be restarted.
        """
        from tuner_tui.runs.launch.restart import plan_restart, restart
        from tuner_tui.runs.store.folder import RunFolder
        from tuner_tui.runs.store.record import read_record, redact_job
        from tuner_tui.settings.job import same_training

        run = RunFolder(folder)
        record = read_record(run)
        same = config is not None and same_training(redact_job(config.job), record.job)
        plan = plan_restart(run, resolved=config.resolved, job=config.job) if config and same else plan_restart(run)
        changes = _changed_settings(record, plan.request.resolved)
        go: Callable[[], Path] = translate_errors()(lambda: restart(plan).path)
        return RestartOffer(_restart_question(plan, changes), go)

    @translate_errors()
    def list_runs(self) -> Sequence[RunRow]:
        """Return the newest runs, newest first."""
        from tuner_tui.runs.read.reader import list_run_or_damage
        from tuner_tui.runs.store.folder import list_runs, runs_dir
        from tuner_tui.runs.supervise.run_processes import ProcessSnapshot

        snapshot, now_s = ProcessSnapshot(), time.time()
        return [list_run_or_damage(folder, now_s, snapshot) for folder in list_runs(runs_dir())[:MAX_LISTED_RUNS]]

    def compare_runs(self, first: Path, second: Path) -> Iterator[ComparedRuns]:
        """Yield the comparison of two runs, one per read, until neither of them is live. Raises `OSError`."""
        from tuner_tui.runs.read.reader import RunReader
        from tuner_tui.runs.store.folder import RunFolder

        readers = [RunReader(RunFolder(folder)) for folder in (first, second)]
        live = True
        while live:
            views = [(reader.folder.id, reader.poll()) for reader in readers]
            (name, one), (other_name, other) = sorted(views, key=lambda view: _start_time_s(view[1]))
            compared = compare_views((name, other_name), one, other)
            live = compared.live
            yield compared

    def adopt_run(self, folder: Path) -> None:
        """Start a new supervisor for a run that lost its own while the training lives; leave other runs alone."""
        from tuner_tui.runs.read.status import read_status
        from tuner_tui.runs.store.folder import RunFolder

        status = read_status(RunFolder(folder))
        if status.kind == "lost" and status.training_alive:
            from tuner_tui.runs.launch.start import adopt

            with translate_errors():
                adopt(RunFolder(folder))

    @translate_errors()
    def follow_run(self, folder: Path) -> FollowedRun:
        """Open the run in `folder`."""
        from tuner_tui.runs.read.log_reader import LogReader
        from tuner_tui.runs.read.reader import RunReader
        from tuner_tui.runs.store.folder import RunFolder

        run = RunFolder(folder)
        return FollowedRun(RunReader(run), LogReader(run.output_log), RunDiagnoser(folder))

    @translate_errors()
    def send_order(self, folder: Path, order: Order) -> None:
        """Ask the run to stop, or to save a checkpoint."""
        from tuner_tui.runs.launch.orders import give_order
        from tuner_tui.runs.store.folder import RunFolder

        give_order(RunFolder(folder), order)


class RunDiagnoser:
    """Diagnoses one followed run at every call. Reads its log; not for the event loop."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        from tuner_tui.advice.diagnose import FindingHysteresis
        from tuner_tui.advice.situation import LogWindowReader
        from tuner_tui.runs.store.folder import RunFolder

        self._clock = clock
        self._log = LogWindowReader(RunFolder(folder).output_log)
        self._hysteresis = FindingHysteresis()
        self._situation: Situation | None = None
        self._findings: tuple[Finding, ...] = ()

    def __call__(self, view: RunView, inventory: Inventory | None) -> tuple[Finding, ...]:
        from tuner_tui.advice.diagnose import diagnose
        from tuner_tui.advice.situation import build_situation

        now_s = self._clock()
        try:
            log = self._log.read(view)
        except OSError:
            log = ()
        situation = build_situation(view, now_s=now_s, inventory=inventory, log=log)
        # The diagnosis applies dozens of rules: it is repeated only for a situation that differs.
        if situation != self._situation:  # the situation of a run that has ended stays the same
            self._situation, self._findings = situation, diagnose(situation)
        if view.state.finished is not None:  # nothing flickers any more
            return self._findings
        # Near a threshold a finding would appear and vanish every second: hysteresis shows it once it lasts, and a
        # while longer.
        self._hysteresis = self._hysteresis.after(self._findings, now_s)
        return self._hysteresis.shown


def _expected_time(config: TrainingConfig, inventory: Inventory | None) -> list[tuple[str, str]]:
    """The line of the expected time; none where neither earlier runs nor the notes tell it."""
    from tuner_tui.advice.recommend.duration_estimate import describe_duration, expected_duration
    from tuner_tui.advice.recommend.target import target_of
    from tuner_tui.runs.store.folder import runs_dir

    if inventory is None:
        return []
    settings, target = config.resolved.settings, target_of(inventory, None, config.job)
    cards = [card.name for card in target.cards]
    found = expected_duration(config.job, settings, target.replicas, cards, runs_dir())
    return [] if found is None else [("Expected time", describe_duration(found, settings.num_train_epochs))]


@translate_errors()
def _restart_question(plan: RestartPlan, changes: Sequence[str]) -> str:
    name, lost = plan.folder.id, plan.lost_steps
    if plan.saves:
        begin = f"{name} saves a checkpoint and stops; a new run continues from there"
    else:
        assert plan.checkpoint is not None
        begin = f"a new run continues from the checkpoint of {name} at step {plan.checkpoint.step:,}"
        begin = f"{name} stops; {begin}" if plan.live else f"A{begin[1:]}"
    if lost:
        begin += f"; {lost:,} step{'s are' if lost > 1 else ' is'} repeated"
    what = f"with {', '.join(changes)}" if changes else "with the same settings"
    return f"{begin}, {what}."


def _changed_settings(record: RunRecord, resolved: Resolved) -> list[str]:
    """Return texts such as `micro batch 8 → 4`, one for each setting that changes."""
    from tuner_tui.settings.model import FIELDS, format_value

    before, after = record.resolved.settings, resolved.settings
    return [
        f"{spec.label} {format_value(name, getattr(before, name)) or 'none'} → "
        f"{format_value(name, getattr(after, name)) or 'none'}"
        for name, spec in FIELDS.items()
        if getattr(before, name) != getattr(after, name)
    ]


def compare_views(names: tuple[str, str], one: RunView, other: RunView) -> ComparedRuns:
    """Compare `one` with the later run `other`."""
    from tuner_tui.runs.read.comparison import compare, over_samples

    return ComparedRuns(
        names,
        (_status_sentence(one), _status_sentence(other)),
        compare(one, other),
        (tuple(over_samples(one, one.history.loss)), tuple(over_samples(other, other.history.loss))),
        one.status.live or other.status.live,
    )


def _status_sentence(view: RunView) -> str:
    limit_bytes = None if view.record is None else view.record.memory_limit_bytes
    return outcome_sentence(view.state, limit_bytes) or view.status.sentence


def _start_time_s(view: RunView) -> float:
    return view.record.created_t if view.record is not None else view.state.launched_t or 0.0
