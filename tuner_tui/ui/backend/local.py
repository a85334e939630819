"""The backend of this machine. Heavy imports stand inside the calls that need them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tuner_tui.ui.backend import runs
from tuner_tui.ui.backend.estimates import MemoryEstimator
from tuner_tui.ui.backend.interface import (
    Backend,
    HardwareSampler,
    PresetListing,
    RestartOffer,
    TrainingConfig,
    translate_errors,
)
from tuner_tui.ui.backend.runs import RunPairReader
from tuner_tui.ui.backend.tunings import LocalTunings

if TYPE_CHECKING:
    from tuner_tui.advice.finding import Finding
    from tuner_tui.advice.situation import Situation
    from tuner_tui.hardware.interpreter.probe import Interpreter
    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.runs.read.reader import RunView
    from tuner_tui.settings.distributed import AccelerateConfig
    from tuner_tui.settings.fields import FieldSpec
    from tuner_tui.settings.job import Job
    from tuner_tui.settings.model import Settings
    from tuner_tui.settings.origin import Resolved
    from tuner_tui.settings.presets.parser import LoadedPreset
    from tuner_tui.settings.rules.problem import Problem


@dataclass(frozen=True, slots=True)
class CliOverrides:
    """What the command line said: the interpreter that trains, values of `--set`, the environment.

    `fallback`: how often a training may go on with a smaller micro batch after it ran out of memory; None: as its job
    says.
    """

    interpreter: Path | None = None
    flags: Mapping[str, str] | None = None
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    memory_limit_bytes: int | None = None
    fallback: int | None = None


def local_backend(wishes: CliOverrides) -> Backend:
    """The services over this machine."""
    memory = MemoryEstimator(wishes.memory_limit_bytes)
    return Backend(
        fields=_fields,
        problems=problems_of,
        recommended=Recommender(wishes.memory_limit_bytes),
        estimate=memory.quick,
        refined_estimate=memory.refined,
        inventory=_inventory,
        accelerate=_accelerate,
        python=_training_python,
        versions=_versions,
        interpreter=_interpreter,
        open_sampler=_open_sampler,
        box_findings=findings_of_box,
        diagnosis=RunDiagnoser,
        presets=_presets,
        load_preset=lambda name: load_preset(name, wishes),
        save_preset=lambda name, opened, overwrite: _save_preset(name, opened, overwrite, wishes),
        preview=lambda opened: _preview(opened, wishes),
        launch=lambda opened: _launch(opened, wishes),
        restart=_restart,
        runs=runs.list_run_folders,
        comparing=RunPairReader,
        tuning=LocalTunings(wishes),
        adopt=runs.adopt,
        follow=runs.follow,
        open_log=runs.open_log,
        order=runs.send_order,
    )


def _fields() -> Sequence[FieldSpec]:
    from tuner_tui.settings.fields import FIELDS

    return tuple(FIELDS.values())


def _inventory() -> Inventory:
    # Both are called on the event loop as soon as the inventory is there: what they need is imported here.
    import tuner_tui.advice.preflight
    import tuner_tui.advice.recommend.recommendation  # noqa: F401
    from tuner_tui.hardware.detect import read_inventory

    return read_inventory(Path.cwd())


def _accelerate(job: Job) -> AccelerateConfig | None:
    import os

    from tuner_tui.settings.distributed import read_accelerate_config

    return read_accelerate_config(job, os.environ, Path.cwd())


def _training_python(job: Job) -> Path:
    import os

    from tuner_tui.runs.launch.training_python import training_python

    own = job.cwd if job.kind == "command" else None
    return training_python(job, os.environ, Path(Path.cwd(), own or ""))


def _versions(python: Path) -> Interpreter:
    from tuner_tui.hardware.interpreter.probe import probe_versions

    return probe_versions(python)


def _interpreter(python: Path) -> Interpreter:
    from tuner_tui.hardware.interpreter.probe import probe_interpreter

    return probe_interpreter(python)


def _open_sampler() -> HardwareSampler:
    from tuner_tui.hardware.sampler import open_sampler

    return open_sampler(Path.cwd())


def _presets() -> Sequence[PresetListing]:
    from tuner_tui.settings.presets.library import list_presets

    with translate_errors():
        listed = list_presets()
    return [
        PresetListing(one.name, (one.loaded.preset.about or "") if one.loaded else "", one.problem) for one in listed
    ]


def load_preset(name: str, wishes: CliOverrides) -> TrainingConfig:
    """The preset `name` with the values that win over it; raises `ServiceError`."""
    from tuner_tui.settings.job import BuiltinJob
    from tuner_tui.settings.oom_fallback import with_fallback
    from tuner_tui.settings.presets.library import find_preset
    from tuner_tui.settings.resolve import PROJECT_FILE, resolve

    with translate_errors():
        loaded = find_preset(name)
        project = _project(Path(PROJECT_FILE))
        resolved = resolve(
            flags=wishes.flags,
            environment=wishes.environment,
            project=Path(PROJECT_FILE),
            preset=loaded.preset,
        )
        job = (project and project.preset.job) or loaded.preset.job or BuiltinJob()
        job = with_interpreter(with_fallback(job, wishes.fallback, wishes.environment or {}), wishes)
    notes = loaded.notes + tuple(f"{PROJECT_FILE}: {note}" for note in (project.notes if project else ()))
    return TrainingConfig(resolved, job, name, base=loaded.preset, notes=notes)


def with_interpreter(job: Job, wishes: CliOverrides) -> Job:
    """The job with the interpreter that the command line names; the job editor may then choose another."""
    return job if wishes.interpreter is None else job.model_copy(update={"interpreter": str(wishes.interpreter)})


def _project(path: Path) -> LoadedPreset | None:
    from tuner_tui.settings.presets.parser import load_preset as read

    return read(path) if path.is_file() else None


def _save_preset(name: str, opened: TrainingConfig, overwrite: bool, wishes: CliOverrides) -> None:
    from tuner_tui.settings.presets.library import preset_path, save_preset
    from tuner_tui.settings.presets.preset import Preset

    with translate_errors():
        base = opened.base or Preset(name=name)
        job = opened.job
        if wishes.interpreter is not None and job.interpreter == str(wishes.interpreter):
            # Said for this screen alone, as by every flag.
            job = job.model_copy(update={"interpreter": None if base.job is None else base.job.interpreter})
        # What is recommended for this box is worked out anew on each: a preset holds what somebody chose.
        preset = base.variant(name, opened.resolved.given).model_copy(update={"job": job})
        save_preset(preset, preset_path(name), overwrite=overwrite)


def _preview(opened: TrainingConfig, wishes: CliOverrides) -> Sequence[tuple[str, str]]:
    from tuner_tui.ui.backend.runs import launch_preview

    with translate_errors():
        return launch_preview(opened, wishes)


def _launch(opened: TrainingConfig, wishes: CliOverrides) -> Path:
    from tuner_tui.runs.launch.prepare import prepare
    from tuner_tui.runs.launch.start import launch
    from tuner_tui.tuning.fallback_process import attach_fallback
    from tuner_tui.ui.backend.runs import launch_request

    with translate_errors():
        request = launch_request(opened, wishes)
        return attach_fallback(launch(prepare(request)), request).path


def _restart(folder: Path, opened: TrainingConfig | None) -> RestartOffer:
    from tuner_tui.ui.backend.runs import restart_offer

    with translate_errors():
        offer = restart_offer(folder, opened)

    def go() -> Path:
        with translate_errors():
            return offer.go()

    return RestartOffer(offer.question, go)


def config_of_run(folder: Path, wishes: CliOverrides) -> TrainingConfig:
    """The settings and the job of a run; the demo's where its record cannot be read."""
    from tuner_tui.runs.store.folder import RunFolder
    from tuner_tui.runs.store.record import RecordError, read_record

    try:
        record = read_record(RunFolder(folder))
    except RecordError:
        return load_preset("demo", wishes)
    return TrainingConfig(
        record.resolved,
        with_interpreter(record.job, wishes),
        record.preset,
        as_it_ran=True,
        memory_limit_bytes=record.memory_limit_bytes,
    )


def problems_of(
    settings: Settings, inventory: Inventory | None, interpreter: Interpreter | None, job: Job
) -> tuple[Problem, ...]:
    """What is wrong with the settings on the cards that a training here would see."""
    from tuner_tui.advice.recommend.target import visible_cards
    from tuner_tui.settings.rules.check import find_problems

    gpus = None if inventory is None else visible_cards(inventory)
    cores = None if inventory is None else inventory.cpu.usable_cores
    return find_problems(settings, gpus=gpus, interpreter=interpreter, job=job, cores=cores)


@dataclass(frozen=True, slots=True)
class Recommender:
    """Fills in what nobody chose, for cards of which a training may take so much."""

    memory_limit_bytes: int | None

    def __call__(self, resolved: Resolved, inventory: Inventory, interpreter: Interpreter, job: Job) -> Resolved:
        from tuner_tui.advice.recommend.recommendation import with_recommended
        from tuner_tui.advice.recommend.target import limit_gpu_memory

        return with_recommended(resolved, limit_gpu_memory(inventory, self.memory_limit_bytes), interpreter, job)


def findings_of_box(
    inventory: Inventory | None, interpreter: Interpreter | None, job: Job | None
) -> tuple[Finding, ...]:
    """What is wrong with box and interpreter before any run."""
    if inventory is None or interpreter is None:
        return ()
    from tuner_tui.advice.preflight import environment_findings

    return environment_findings(inventory, interpreter, job)


class RunDiagnoser:
    """Diagnoses one followed run at every call. Reads its log; not for the event loop."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        from tuner_tui.advice.hysteresis import FindingHysteresis
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
        if situation != self._situation:  # the situation of a run that has ended stays the same
            self._situation, self._findings = situation, diagnose(situation)
        self._hysteresis = self._hysteresis.after(self._findings, now_s)
        return self._hysteresis.shown
