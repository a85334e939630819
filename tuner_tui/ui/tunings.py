"""Plans, starts, lists, follows, aborts and resumes tunings.

What plans and starts one is imported when it is: most screens only ask whether one runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from tuner_tui.core.numbered_folders import FolderNotFoundError
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.launch.prepare import LaunchRequest, launch_summary, prepare
from tuner_tui.runs.launch.start import ensure_no_duplicate
from tuner_tui.runs.read.reader import read_brief
from tuner_tui.runs.store.folder import find_run, runs_dir
from tuner_tui.settings.distributed import process_count
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import Job
from tuner_tui.tuning.store import (
    Cluster,
    TuningFolder,
    TuningOptions,
    TuningRecord,
    list_tunings,
    read_tuning_record,
    tunings_dir,
)
from tuner_tui.tuning.trial_log import TuningReader, TuningView
from tuner_tui.ui.feeds import BackendError
from tuner_tui.ui.records import (
    TrainingConfig,
    TrialPlacement,
    TuningPlan,
    TuningSnapshot,
    TuningWish,
    translates_errors,
)
from tuner_tui.view.tuning_rows import LiveTrial

MAX_LISTED_TUNINGS = 100
UNREACHABLE = "No setting can be passed to this command: e edits the job (pass settings via inject, for example)."
PLAN_SUMMARY = (
    "short real runs: the current settings twice, larger micro batches up to what fits, then other settings that can "
    "gain more than the noise; finally the winner and the current settings, alternating"
)


@translates_errors
class Tunings:
    """The tunings on this machine. Calls may block on files."""

    def plan(
        self,
        config: TrainingConfig,
        inventory: Inventory | None = None,
        interpreter: Interpreter | None = None,
        sample: Sample | None = None,
    ) -> TuningPlan:
        """Return what a tuning of `config` with `interpreter` would do, the time that it needs, and the GPUs that are
        free in `sample`.
        """
        from tuner_tui.runs.queue.gpu_occupancy import occupancies_by
        from tuner_tui.tuning.create import time_needed
        from tuner_tui.tuning.trial_gpus import free_gpus
        from tuner_tui.tuning.tuned_preset import tuned_preset_name

        request = _tunable_request(config)
        launch_lines, needed = launch_summary(prepare(request)), time_needed(request)
        batch = config.resolved.settings.effective_batch(1)
        preset = tuned_preset_name(config.preset, config.job)
        lines = [
            ("Runs", PLAN_SUMMARY),
            ("Time", needed.sentence),
            ("Keeps", f"the effective batch ({batch} per process), so the learning rate still applies"),
            ("Saves", f"the winner as the preset {preset}; the current settings do not change"),
            *launch_lines,
        ]
        gpus: tuple[str, ...] = ()
        if inventory is not None and len(inventory.gpus) > 1 and sample is not None:
            occupancies = partial(occupancies_by, runs_dir(), inventory.gpus, sample)
            try:
                gpus = free_gpus(request.job, inventory, interpreter, occupancies)
            except SettingsError as error:
                lines.append(("GPUs", f"one trial at a time. {error}"))
        if len(gpus) == 1:
            lines.append(("GPUs", "one trial at a time: only one is free"))
        return TuningPlan(lines, needed.minutes, _placements(request, len(gpus)), gpus)

    def start(self, config: TrainingConfig, wish: TuningWish) -> Path:
        from tuner_tui.tuning.create import TunerSpec, create_tuning, start_tuning

        request = _tunable_request(config)
        on: Cluster | None = "ray" if wish.placement == "ray" else None
        options = TuningOptions(most_minutes=wish.minutes, gpu_uuids=wish.gpus, on=on)
        folder = create_tuning(request, options)
        start_tuning(folder, TunerSpec(request.job, request.environ, wish.minutes))
        return folder.path

    def list_newest(self) -> Mapping[Path, TuningView]:
        """Return the newest tunings by their folders; one whose creation was interrupted has nothing to show."""
        created = (folder for folder in list_tunings(tunings_dir(os.environ)) if folder.record.exists())
        return {folder.path: TuningReader(folder).poll() for folder in islice(created, MAX_LISTED_TUNINGS)}

    def watch_running(self) -> Iterator[TuningView | None]:
        """Yield the tuning that runs, else how the last one seen ended; None before the first. Raises `OSError`."""
        reader: TuningReader | None = None
        view: TuningView | None = None
        while True:
            if reader is None:
                running = (folder for folder in list_tunings(tunings_dir(os.environ)) if folder.live)
                reader = next(map(TuningReader, running), None)
            if reader is not None:
                view = reader.poll()
                if view.status != "running":
                    reader = None
            yield view

    def follow(self, folder: Path) -> Iterator[TuningSnapshot]:
        """Yield the tuning in `folder`, one snapshot per read, until it has ended. Raises `OSError`."""
        reader = TuningReader(TuningFolder(folder))
        running = True
        while running:
            now_s = time.time()
            live = reader.folder.live  # a tuning that was just resumed still has the status of its end
            view = reader.poll(now_s)
            running = live or view.status == "running"
            yield TuningSnapshot(view, now_s, _live_trials(view, now_s)) if running else TuningSnapshot(view, None)

    def is_same_job(self, folder: Path, config: TrainingConfig) -> bool:
        """Whether the tuning in `folder` trains the job of `config`."""
        return config.trains(read_tuning_record(TuningFolder(folder)).job)

    def abort(self, folder: Path) -> None:
        """Ask the tuning to stop its trial and end; what was measured is kept."""
        TuningFolder(folder).abort()

    def resume(self, folder: Path, config: TrainingConfig | None, minutes: float) -> None:
        """Resume an aborted tuning for at most `minutes`."""
        from tuner_tui.tuning.create import TunerSpec, start_tuning

        tuning = TuningFolder(folder)
        job = resumed_job(read_tuning_record(tuning), config)
        start_tuning(tuning, TunerSpec(job, dict(os.environ), minutes))


def _live_trials(view: TuningView, now_s: float) -> dict[str, LiveTrial]:
    """Return what the runs of trials under way measure; a run that is not there yet is left out."""
    live = {}
    for started in view.running:
        with suppress(FolderNotFoundError):
            state = read_brief(find_run(started.run, runs_dir())).state
            live[started.run] = LiveTrial(state.step, state.rates.samples_s, state.rates.tokens_s, now_s - started.t)
    return live


def _placements(request: LaunchRequest, free_gpus: int) -> Mapping[TrialPlacement, str]:
    """The places that the trials may have. A cluster is offered to a user who has named it."""
    placements: dict[TrialPlacement, str] = {"sequential": "one after another"}
    if free_gpus > 1:
        placements["gpus"] = f"one on each of {free_gpus} free GPUs"
    address = request.environ.get("RAY_ADDRESS")
    if address and find_spec("ray") is not None and process_count(request.job, 1) == 1:
        placements["ray"] = f"on the Ray cluster {address}"
    return placements


def _tunable_request(config: TrainingConfig) -> LaunchRequest:
    from tuner_tui.tuning.create import ensure_tunable

    request = config.launch_request()
    try:
        ensure_tunable(request.job)
    except SettingsError as error:
        raise BackendError(UNREACHABLE) from error
    ensure_no_duplicate(request)
    return request


def resumed_job(record: TuningRecord, config: TrainingConfig | None) -> Job:
    """Return the job of `config` if the tuning trains the same one: the record has its secrets redacted."""
    return config.job if config is not None and config.trains(record.job) else record.job
