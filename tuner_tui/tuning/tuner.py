"""The detached process that tunes, `python -m tuner_tui.tuning.tuner DIR`: it runs one trial after another.

It needs no screen and no terminal. Its folder holds all of its state: others read it there, abort it there, and a tuner
that was killed is started again from it without repeating a trial.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from msgspec import Struct, field, structs
from msgspec.structs import replace

from tuner_tui.advice.estimate import JobMemoryEstimator
from tuner_tui.advice.recommend.target import limit_gpu_memory, target_of
from tuner_tui.core.procfs import identify_process
from tuner_tui.hardware.detect import read_inventory
from tuner_tui.hardware.interpreter import Interpreter, probe_interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.hardware.other_load import OtherLoad, measure_other_load
from tuner_tui.hardware.sampler import open_sampler
from tuner_tui.memory.fit import PeakModel
from tuner_tui.memory.job_task import modelled_job
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest, prepare
from tuner_tui.runs.read.measured_memory import measured_runs
from tuner_tui.runs.store.folder import RunFolder, runs_dir, state_dir
from tuner_tui.runs.store.record import RecordError
from tuner_tui.runs.supervise.run_processes import detach
from tuner_tui.settings.command_training import read_command
from tuner_tui.settings.distributed import read_accelerate_config
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Resolved, Settings
from tuner_tui.settings.preset_file import save_preset
from tuner_tui.tuning import trial_log
from tuner_tui.tuning.create import TunerSpec
from tuner_tui.tuning.ray_cluster import open_ray_workers
from tuner_tui.tuning.search.search import Search, comparable, proposals_on
from tuner_tui.tuning.search.space import TUNED_FIELDS, Quiet, SearchSpace, build_space, with_candidates
from tuner_tui.tuning.store import TuningFolder, TuningRecord, acquire_locks, read_tuning_record
from tuner_tui.tuning.time_budget import TimeBudget, expected_trial_s, give_up_s, minutes_for
from tuner_tui.tuning.trial import CompletedTrial, Measurement, Trial, TrialProtocol, TuningConclusion, WholeJob
from tuner_tui.tuning.trial_gpus import NO_GPU_LEFT, GpuLostError, LocalGpus, TrialGpus, inventory_of_trial
from tuner_tui.tuning.trial_runner import TrialCallbacks, TrialReport, TrialRunner, end_run
from tuner_tui.tuning.tuned_preset import (
    preset_mismatch,
    preset_request,
    run_preset,
    save_tuned_preset,
    tuned_preset,
    tuned_preset_name,
    values_in_effect,
)


class TrialHistory(Struct, frozen=True):
    """What is known from the trials so far. `start` are the settings of the first one, as far as they were observed."""

    start: Settings
    trials: tuple[CompletedTrial, ...] = ()
    unreachable: frozenset[str] = frozenset()

    def after(self, trial: Trial, report: TrialReport) -> TrialHistory:
        """Return the history with one more trial. The first one shows the settings that a script sets itself."""
        settings = trial.settings if self.trials else report.settings
        start = self.start if self.trials else report.settings
        measurement, measured = report.measurement, (completed.measurement for completed in self.trials)
        reference = next((run for run in measured if run.outcome == "measured"), None)
        if measurement.outcome == "measured" and reference and (difference := measurement.other_data(reference)):
            measurement = replace(measurement, outcome="other-data", sentence=difference)
        completed = CompletedTrial(replace(trial, settings=settings), measurement)
        return TrialHistory(start, (*self.trials, completed), self.unreachable | report.unreachable)

    @property
    def room_bytes(self) -> int | None:
        """The least memory that the GPU had for the training in any trial: other programs' memory varies."""
        rooms = (completed.measurement.room_bytes for completed in self.trials)
        return min((room for room in rooms if room is not None), default=None)

    @property
    def dataset_samples(self) -> int | None:
        sizes = (completed.measurement.dataset_samples for completed in self.trials)
        return next((samples for samples in sizes if samples is not None), None)

    @staticmethod
    def from_entries(start: Settings, entries: list[trial_log.LogEntry]) -> TrialHistory:
        """Return the history of a tuning, which may have been resumed.

        If a tuning ended for lack of time, its confirming trials become ordinary ones, so that the search goes on.
        """
        trials, ended = tuple[CompletedTrial, ...](), None
        for entry in entries:
            if isinstance(entry, trial_log.TrialCompleted):
                trials = (*trials, entry.tried)
            elif isinstance(entry, trial_log.TuningEnded):
                ended = entry
            elif isinstance(entry, trial_log.TuningStarted) and ended is not None:
                trials = trial_log.resumed_trials(trials, ended, entry)
                if ended.early:
                    trials = tuple(
                        replace(completed, trial=replace(completed.trial, purpose="knob"))
                        if completed.trial.purpose == "confirm"
                        else completed
                        for completed in trials
                    )
                ended = None
        names = (name for entry in entries if isinstance(entry, trial_log.TrialCompleted) for name in entry.unreachable)
        return TrialHistory(trials[0].trial.settings if trials else start, trials, frozenset(names))


SearchFactory = Callable[[TrialHistory, bool], Search]
"""Returns the search after a history of trials; the flag is `Search.compare_only`."""


@dataclass
class Tuner:
    """Runs one tuning until the search or its time is at an end.

    Attributes:
        deadline_t: When the tuning must be done, in seconds since the epoch.
        early: The search was cut short for lack of time.
        needed_s: Seconds that the next trial would have needed.
        predicted_s: Seconds of a trial by earlier runs of the job, until one was run; None if there are none.
    """

    folder: TuningFolder
    log: trial_log.TrialLog
    gpus: TrialGpus
    runner: TrialRunner
    search_from: SearchFactory
    deadline_t: float
    now: Callable[[], float] = time.time
    early: bool = False
    needed_s: float | None = None
    predicted_s: float | None = None

    def tune(self, history: TrialHistory) -> trial_log.TuningEnded:
        """Run trials to the end. Returns the last log entry without writing it. Raises `LaunchError`, `OSError`."""
        over = threading.Event()
        with ThreadPoolExecutor(len(self.gpus.gpus)) as pool:
            try:
                return self._tune(history, pool, over)
            finally:
                over.set()  # ends the trials that are not needed any more

    def _tune(self, history: TrialHistory, pool: ThreadPoolExecutor, over: threading.Event) -> trial_log.TuningEnded:
        gpus, running = list(self.gpus.gpus), dict[Future[TrialReport], Trial]()
        while not self.folder.aborted():
            busy = {trial.gpu for trial in running.values()}
            idle = [gpu for gpu in gpus if gpu not in busy]
            search, trials = self.next_trials(history, idle, tuple(running.values()))
            runner = self.runner.with_start(history.start) if history.trials else self.runner
            for trial in trials:
                callbacks = self._callbacks(trial, search, history, over)
                running[pool.submit(self.gpus.run, trial.gpu, runner, trial, callbacks)] = trial
            if not search.proposals or (gpus and not running):
                return self.end("finished", search.conclusion)
            if not gpus:
                resume = f"`tuner-tui tune --resume {self.folder.argument}` continues when they are back."
                ended = self.end("failed", None if search.best is None else search.conclusion)
                return structs.replace(ended, sentence=f"{NO_GPU_LEFT} {resume}")
            wait(running, return_when=FIRST_COMPLETED)
            history, aborted = self._collect(history, running, gpus)
            if aborted:
                break
        over.set()
        wait(running)  # some may have been measured before they were aborted
        return self.interrupted(self._collect(history, running, gpus)[0])

    def _collect(
        self, history: TrialHistory, running: dict[Future[TrialReport], Trial], gpus: list[str | None]
    ) -> tuple[TrialHistory, bool]:
        """Log the `running` trials that have ended. Returns the history with them, and whether one was aborted."""
        aborted = False
        for future in [future for future in running if future.done()]:
            trial = running.pop(future)
            try:
                report = future.result()
            except GpuLostError:  # the search proposes the trial again
                gpus.remove(trial.gpu)
                continue
            except LaunchError as error:
                if not history.trials:
                    raise
                report = TrialReport(Measurement(outcome="failed", seconds=0.0, sentence=str(error)), trial.settings)
            if report.measurement.outcome == "aborted":
                aborted = True
                continue
            history = history.after(trial, report)
            self.write(history, report)
        return history, aborted

    def next_trials(
        self, history: TrialHistory, idle: Sequence[str | None], under_way: tuple[Trial, ...] = ()
    ) -> tuple[Search, list[Trial]]:
        """Return the search, and the best proposal that there is time for on each `idle` GPU."""
        # First what the search wants most, then a cheaper proposal that still fits into the time; if none does, the
        # search is built again to compare what it has, so that a short tuning ends in something confirmed.
        search = self.search_from(history, self.early)
        budget, trials = self._budget(history, search), list[Trial]()
        for gpu in idle:
            proposals = search.proposals if gpu is None else proposals_on(search, gpu, (*under_way, *trials))
            trials += islice(filter(budget.fits, proposals), 1)
        if trials or under_way or not idle or self.early or not search.proposals:
            return search, trials
        self.early = True
        self.needed_s = min(map(budget.needed_s, search.proposals))
        return self.next_trials(history, idle)

    def _budget(self, history: TrialHistory, search: Search) -> TimeBudget:
        best = search.best
        return TimeBudget(history.trials, None if best is None else best.settings, self.deadline_t - self.now())

    def _callbacks(self, trial: Trial, search: Search, history: TrialHistory, over: threading.Event) -> TrialCallbacks:
        expected_s = self._budget(history, search).expected_s(trial.settings) if history.trials else self.predicted_s

        def launched(run: RunFolder) -> None:
            low, high = search.remaining_s() or (None, None)
            entry = trial_log.TrialStarted(
                t=self.now(), trial=trial, run=run.id, left_low_s=low, left_high_s=high, expected_s=expected_s
            )
            self.log.add(entry)

        measured = any(completed.measurement.outcome == "measured" for completed in history.trials)
        limit_s = give_up_s(expected_s) if measured and expected_s is not None else None
        aborted = lambda: over.is_set() or self.folder.aborted()  # noqa: E731
        return TrialCallbacks(aborted, launched, self.deadline_t, expected_s, limit_s)

    def write(self, history: TrialHistory, report: TrialReport) -> None:
        """Log the last trial of the history."""
        search = self.search_from(history, False)
        self.log.add(
            trial_log.TrialCompleted(
                t=self.now(),
                tried=history.trials[-1],
                skipped=search.skipped,
                unreachable=tuple(sorted(report.unreachable)),
                capacity_bytes=search.space.capacity_bytes,
                limit_bytes=search.space.limit_bytes,
                whole_job=search.space.whole_job,
            )
        )

    def interrupted(self, history: TrialHistory) -> trial_log.TuningEnded:
        """The end of a tuning that was aborted, or whose time was over during a trial, with what was measured."""
        search = self.search_from(history, False)
        aborted = self.folder.aborted()
        self.early = not aborted
        why = "It was stopped" if aborted else "The time limit was reached"
        if search.best is None:
            ended = self.end("aborted" if aborted else "failed", None)
            return structs.replace(ended, sentence=f"{why} before anything was measured. {ended.sentence}".rstrip())
        conclusion = search.conclusion
        conclusion = replace(conclusion, sentence=f"{why} before the end. {conclusion.sentence}")
        return self.end("aborted" if aborted else "finished", conclusion)

    def end(self, status: trial_log.TuningEndStatus, conclusion: TuningConclusion | None) -> trial_log.TuningEnded:
        minutes = None if self.needed_s is None or not self.early else minutes_for(self.needed_s)
        more = "there was more to try" if minutes is None else f"the next trial and its comparison need {minutes} min"
        return trial_log.TuningEnded(
            t=self.now(),
            status=status,
            verdict=conclusion,
            early=self.early,
            needed_minutes=minutes,
            sentence=f"Time was short: {more}." if self.early else "",
        )


GPU_TIMEOUT_S = 5.0
"""Maximum wait for the GPU driver before the load of the GPUs counts as unknown."""


def tune(folder: TuningFolder, spec: TunerSpec, log: trial_log.TrialLog) -> trial_log.TuningEnded:
    """Run or resume the tuning in `folder` and save its winner. Returns the last log entry without writing it.

    Raises `LaunchError`, `SettingsError` and `RecordError`.
    """
    record = read_tuning_record(folder)
    request = LaunchRequest(
        job=spec.job,
        resolved=record.resolved,
        interpreter=record.interpreter,
        cwd=Path(record.cwd),
        preset=record.preset,
        memory_limit_bytes=record.memory_limit_bytes,
        environ=spec.environ,
        tuning=folder.id,
        ends_with=identify_process(os.getpid()),
        job_file=folder.record,
    )
    reader = trial_log.TuningReader(folder)
    entries = reader.entries()
    # The supervisors of trials that a killed tuner left running would share the GPU with the first trial from now on.
    for run in reader.running_trials():
        end_run(RunFolder(runs_dir(request.environ) / run.run))
    machine = read_inventory(state_dir(spec.environ))
    with open_gpus(record, folder, machine) as gpus:
        interpreter = probe_interpreter(Path(prepare(request).interpreter.path))
        limited = limit_gpu_memory(gpus.inventory, record.memory_limit_bytes)
        prior = estimate_prior(limited, interpreter, spec, record.resolved, Path(record.cwd))
        context = TuningContext(record, spec, gpus.inventory, interpreter, prior)
        deadline_t = time.time() + spec.minutes * 60
        space = context.space(TrialHistory.from_entries(record.resolved.settings, entries))
        load = OtherLoad()
        if not record.on:
            with closing(open_sampler(state_dir(spec.environ))) as sampler:
                sampler.wait_ready(GPU_TIMEOUT_S)
                load = measure_other_load(sampler.sample, machine.cpu.load_cores)
        if gpus.gpus != (None,):  # the GPUs of parallel trials are free, whatever runs on others,
            load = replace(load, gpu_share=None)
        quiet = Quiet.after(load, space.on_gpu)
        if gpus.gpus != (None,):  # and their processes cannot be distinguished from other programs
            quiet = replace(quiet, max_cpu_share=1.0)
        context = replace(context, quiet=quiet)
        started = trial_log.TuningStarted(
            t=time.time(),
            capacity_bytes=space.capacity_bytes,
            limit_bytes=space.limit_bytes,
            deadline_t=deadline_t,
            load=load,
            busy=quiet.busy,
        )
        log.add(started)
        history = TrialHistory.from_entries(record.resolved.settings, [*entries, started])
        runner = TrialRunner(request, TrialProtocol.within(spec.minutes))
        predicted_s = expected_trial_s(spec.job, runs_dir(spec.environ))
        tuner = Tuner(folder, log, gpus, runner, context.search, deadline_t, predicted_s=predicted_s)
        ended = tuner.tune(history)
        return _save_winner(ended, context, request, folder, entries, gpus)


@contextmanager
def open_gpus(record: TuningRecord, folder: TuningFolder, machine: Inventory) -> Iterator[TrialGpus]:
    """Return where the trials of a tuning run. Raises `LaunchError`."""
    if record.on == "ray":
        with open_ray_workers(record, folder) as workers:
            yield workers
    elif record.gpu_uuids:
        shown = {gpu.uuid for gpu in machine.gpus}  # a tuning that is resumed may find other GPUs
        present = tuple(uuid for uuid in record.gpu_uuids if uuid in shown)
        if not present:
            raise LaunchError(NO_GPU_LEFT)
        yield LocalGpus(inventory_of_trial(machine, present), present)
    else:
        yield LocalGpus(machine)


class TuningContext(Struct, frozen=True):
    """What is tuned, and where. `prior` is the memory estimate made before any run.

    `quiet` says when a trial is undisturbed by other programs.
    """

    record: TuningRecord
    spec: TunerSpec
    inventory: Inventory
    interpreter: Interpreter
    prior: PeakModel | None = None
    quiet: Quiet = field(default_factory=Quiet)

    def space(self, history: TrialHistory) -> SearchSpace:
        """Return the search space after the trials so far. Raises `SettingsError`."""
        limit = self.record.memory_limit_bytes
        space = build_space(
            limit_gpu_memory(self.inventory, limit),
            self.interpreter,
            self.spec.job,
            history.start,
            memory_limit_bytes=min((size for size in (limit, history.room_bytes) if size is not None), default=None),
            dataset_size=history.dataset_samples,
            hold_effective_batch=not self.record.free_batch,
            prior=self.prior,
            accelerate=read_accelerate_config(self.spec.job, self.spec.environ, Path(self.record.cwd)),
        )
        unreachable = space.unreachable | history.unreachable
        measurements = [completed.measurement for completed in history.trials]
        whole_job = None
        if self.record.objective == "job":  # the first trial that was measured tells the length of the training
            whole_job = next((WholeJob.of(run) for run in measurements if run.outcome == "measured"), None)
        return with_candidates(
            replace(
                space,
                unreachable=unreachable,
                whole_job=whole_job,
                quiet=self.quiet,
                workers_repeat=any(run.workers_repeat for run in measurements),
                waits_idly=any(run.breakdown.waits_idly for run in measurements),
            ),
            history.start,
        )

    def search(self, history: TrialHistory, compare_only: bool) -> Search:
        """Return the search after the trials so far. Raises `SettingsError`."""
        return Search(history.start, self.space(history), comparable(history.trials), compare_only)


def estimate_prior(
    inventory: Inventory, interpreter: Interpreter, spec: TunerSpec, start: Resolved, folder: Path = Path()
) -> PeakModel | None:
    """Return the estimated peak memory on a GPU of a job whose model is known; None for others and on the host.

    The context of the GPU is excluded, as it is from the measurements. On the host, limits count private memory, which
    does not compare with an estimate of resident memory. A command, started in `folder`, has settings of its own.
    """
    target = target_of(inventory, interpreter, spec.job).trained_with(start.settings)
    job = modelled_job(spec.job)
    if not target.on_gpu or job is None:
        return None
    if isinstance(spec.job, CommandJob):
        named = read_command(spec.job.command, folder, spec.job.env).in_effect
        start = start.with_own({name: value for name, value in named.items() if name not in TUNED_FIELDS})
    runs = measured_runs(spec.job, runs_dir(spec.environ))
    estimate = JobMemoryEstimator.of(target, job, target.device, runs).at_once(start.settings)
    if estimate is None:
        return None
    context, peak = estimate.overhead.context_bytes, estimate.peak
    return replace(peak, base_bytes=peak.base_bytes - context, floor_bytes=max(0.0, peak.floor_bytes - context))


def _save_winner(
    ended: trial_log.TuningEnded,
    context: TuningContext,
    request: LaunchRequest,
    folder: TuningFolder,
    earlier: Sequence[trial_log.LogEntry],
    gpus: TrialGpus,
) -> trial_log.TuningEnded:
    """Save the preset of a confirmed winner, after a run with it has trained like the winner."""
    conclusion, record = ended.verdict, context.record
    if ended.status != "finished" or conclusion is None or not (conclusion.best and conclusion.best.throughput):
        return ended
    history = TrialHistory.from_entries(record.resolved.settings, trial_log.TuningReader(folder).entries())
    if conclusion.winner == history.start:
        return structs.replace(ended, sentence=f"No preset was saved. {ended.sentence}".rstrip())
    # A finished tuning that is resumed keeps its preset.
    before = next((entry for entry in reversed(earlier) if isinstance(entry, trial_log.TuningEnded)), None)
    if before is not None and before.verdict == conclusion and before.preset and Path(before.preset).exists():
        return structs.replace(ended, preset=before.preset)
    name = record.save_as or tuned_preset_name(record.preset, context.spec.job)
    start = replace(record.resolved, settings=history.start)
    preset = tuned_preset(name, conclusion, start, context.spec.job, context.inventory, folder.id)
    try:
        save_preset(preset, folder.preset, overwrite=True)
        launch = preset_request(folder.preset, request)
        measurement = run_preset(launch, gpus, TrialCallbacks(folder.aborted))
        values = (values_in_effect(run, request.environ) for run in (measurement, conclusion.best))
        if mismatch := preset_mismatch(measurement, conclusion.best, *values):
            sentence = f"The preset was not saved: when run again, {mismatch}. It is in {folder.preset}."
            return structs.replace(ended, sentence=sentence)
        return structs.replace(ended, preset=str(save_tuned_preset(preset)))
    except (SettingsError, LaunchError) as error:
        return structs.replace(ended, sentence=f"The winner could not be saved: {error}")


def main(argv: list[str]) -> None:
    """Tune in the folder `argv[0]`."""
    folder = TuningFolder(Path(argv[0]))
    spec, locks = detach(lambda data: (TunerSpec.load(data), acquire_locks(folder)))
    log = trial_log.TrialLog(folder)
    try:
        ended = tune(folder, spec, log)
    except (LaunchError, SettingsError, RecordError) as error:
        ended = trial_log.TuningEnded(t=time.time(), status="failed", sentence=str(error))
    except Exception as error:  # noqa: BLE001  the log must say that the tuning has ended
        traceback.print_exc()
        sentence = f"The tuner failed: {type(error).__name__}: {error}. See {folder.log}."
        ended = trial_log.TuningEnded(t=time.time(), status="failed", sentence=sentence)
    log.add(ended)
    for lock in locks:
        os.close(lock)


if __name__ == "__main__":
    main(sys.argv[1:])
