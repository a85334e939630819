"""The services of the real program. Every import of weight stands inside the call that needs it.

The screen draws its first frame before pydantic, YAML or the driver's library is loaded; each call here is made on a
thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tuner_tui.ui import run_wiring
from tuner_tui.ui.advice_wiring import Diagnosing, Recommending, findings_of_box, problems_of
from tuner_tui.ui.comparing import ComparingRuns
from tuner_tui.ui.estimate_wiring import EstimatingHere
from tuner_tui.ui.services import Opened, PresetLine, RestartOffer, Sampler, Services
from tuner_tui.ui.spoken import spoken
from tuner_tui.ui.tuning_wiring import TuningsHere

if TYPE_CHECKING:
    from tuner_tui.hardware.interpreter.probe import Interpreter
    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.settings.distributed import AccelerateConfig
    from tuner_tui.settings.fields import FieldSpec
    from tuner_tui.settings.job import Job
    from tuner_tui.settings.presets.parser import LoadedPreset


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line said: the interpreter that trains, values of `--set`, the environment.

    `fallback`: how often a training may go on with a smaller micro batch after it ran out of memory; None: as its job
    says.
    """

    interpreter: Path | None = None
    flags: Mapping[str, str] | None = None
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    memory_limit_bytes: int | None = None
    fallback: int | None = None


def real_services(wishes: Wishes) -> Services:
    """The services over this machine."""
    memory = EstimatingHere(wishes.memory_limit_bytes)
    return Services(
        fields=_fields,
        problems=problems_of,
        recommended=Recommending(wishes.memory_limit_bytes),
        estimate=memory.quick,
        refined_estimate=memory.refined,
        inventory=_inventory,
        accelerate=_accelerate,
        python=_python,
        versions=_versions,
        interpreter=_interpreter,
        open_sampler=_open_sampler,
        box_findings=findings_of_box,
        diagnosis=Diagnosing,
        presets=_presets,
        load_preset=lambda name: load_preset(name, wishes),
        save_preset=lambda name, opened, overwrite: _save_preset(name, opened, overwrite, wishes),
        preview=lambda opened: _preview(opened, wishes),
        launch=lambda opened: _launch(opened, wishes),
        restart=_restart,
        runs=run_wiring.runs,
        comparing=ComparingRuns,
        tuning=TuningsHere(wishes),
        adopt=run_wiring.adopt,
        follow=run_wiring.follow,
        open_log=run_wiring.open_log,
        order=run_wiring.order,
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


def _python(job: Job) -> Path:
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


def _open_sampler() -> Sampler:
    from tuner_tui.hardware.sampler import open_sampler

    return open_sampler(Path.cwd())


def _presets() -> Sequence[PresetLine]:
    from tuner_tui.settings.presets.library import list_presets

    with spoken():
        listed = list_presets()
    return [PresetLine(one.name, (one.loaded.preset.about or "") if one.loaded else "", one.problem) for one in listed]


def load_preset(name: str, wishes: Wishes) -> Opened:
    """The preset `name` with the values that win over it; raises `ServiceError`."""
    from tuner_tui.settings.job import BuiltinJob
    from tuner_tui.settings.oom_fallback import with_fallback
    from tuner_tui.settings.presets.library import find_preset
    from tuner_tui.settings.resolve import PROJECT_FILE, resolve

    with spoken():
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
    return Opened(resolved, job, name, base=loaded.preset, notes=notes)


def with_interpreter(job: Job, wishes: Wishes) -> Job:
    """The job with the interpreter that the command line names; the job editor may then choose another."""
    return job if wishes.interpreter is None else job.model_copy(update={"interpreter": str(wishes.interpreter)})


def _project(path: Path) -> LoadedPreset | None:
    from tuner_tui.settings.presets.parser import load_preset as read

    return read(path) if path.is_file() else None


def _save_preset(name: str, opened: Opened, overwrite: bool, wishes: Wishes) -> None:
    from tuner_tui.settings.presets.library import preset_path, save_preset
    from tuner_tui.settings.presets.preset import Preset

    with spoken():
        base = opened.base or Preset(name=name)
        job = opened.job
        if wishes.interpreter is not None and job.interpreter == str(wishes.interpreter):
            # Said for this screen alone, as by every flag.
            job = job.model_copy(update={"interpreter": None if base.job is None else base.job.interpreter})
        # What is recommended for this box is worked out anew on each: a preset holds what somebody chose.
        preset = base.variant(name, opened.resolved.given).model_copy(update={"job": job})
        save_preset(preset, preset_path(name), overwrite=overwrite)


def _preview(opened: Opened, wishes: Wishes) -> Sequence[tuple[str, str]]:
    from tuner_tui.ui.job_wiring import preview_of

    with spoken():
        return preview_of(opened, wishes)


def _launch(opened: Opened, wishes: Wishes) -> Path:
    from tuner_tui.runs.launch.start import launch
    from tuner_tui.tuning.fallback_process import attach_fallback
    from tuner_tui.ui.job_wiring import launch_request

    with spoken():
        request = launch_request(opened, wishes)
        return attach_fallback(launch(request), request).path


def _restart(folder: Path, opened: Opened | None) -> RestartOffer:
    from tuner_tui.ui.job_wiring import restart_offer

    with spoken():
        offer = restart_offer(folder, opened)

    def go() -> Path:
        with spoken():
            return offer.go()

    return RestartOffer(offer.question, go)


def opened_from_run(folder: Path, wishes: Wishes) -> Opened:
    """The settings and the job of a run; the demo's where its record cannot be read."""
    from tuner_tui.runs.store.folder import RunFolder
    from tuner_tui.runs.store.record import RecordError, read_record

    try:
        record = read_record(RunFolder(folder))
    except RecordError:
        return load_preset("demo", wishes)
    return Opened(
        record.resolved,
        with_interpreter(record.job, wishes),
        record.preset,
        as_it_ran=True,
        memory_limit_bytes=record.memory_limit_bytes,
    )
