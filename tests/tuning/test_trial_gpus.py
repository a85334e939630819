"""The loop of a tuning on several GPUs; no training, no process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.benchmarks.tuning.simulated_training import random_training
from tests.fakes.inventories import box, make_gpu, python
from tests.fakes.listed_search import RUNNER
from tests.tuning.builders import SCRIPT, resolved, tuning_record
from tuner_tui.core.file_locks import acquire_lock
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.queue.turns import GpuOccupancy
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.search import Search, comparable
from tuner_tui.tuning.store import TuningFolder
from tuner_tui.tuning.trial import Measurement, Trial
from tuner_tui.tuning.trial_gpus import NO_GPU_LEFT, GpuLostError, bind, choose_gpus, free_gpus, inventory_of_trial
from tuner_tui.tuning.trial_log import TrialCompleted, TrialLog, TuningEnded, TuningReader, TuningStarted
from tuner_tui.tuning.trial_runner import TrialCallbacks, TrialReport, TrialRunner
from tuner_tui.tuning.tuned_preset import run_preset
from tuner_tui.tuning.tuner import TrialHistory, Tuner, open_gpus

GPUS: tuple[str | None, ...] = ("GPU-a", "GPU-b", "GPU-c")
NOON = 1_000_000.0
TRAINING = random_training(12)


@dataclass
class Gpus:
    """Runs the trials of a simulated training without delay; `before` is called before each, and may answer it."""

    before: Callable[[Trial, TrialCallbacks], Measurement | None] = lambda trial, callbacks: None
    busy: set[str | None] = field(default_factory=set)
    ran: list[tuple[str | None, Trial]] = field(default_factory=list)
    starts: list[Settings] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    script_start: Settings | None = None
    gpus: tuple[str | None, ...] = GPUS
    inventory: Inventory = field(default_factory=box)

    def run(self, gpu: str | None, runner: TrialRunner, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
        with self.lock:
            assert gpu not in self.busy, "at most one trial on a GPU"
            self.busy.add(gpu)
            self.ran.append((gpu, trial))
            self.starts.append(runner.base.resolved.settings)
        callbacks.launched(RunFolder(Path(f"/nowhere/r{len(self.ran):03d}")))
        try:
            measured = self.before(trial, callbacks) or TRAINING.run(trial.settings, trial.number)
        finally:
            with self.lock:
                self.busy.remove(gpu)
        return TrialReport(measured, self.script_start or trial.settings)


class Bench:
    """One tuning on three GPUs."""

    def __init__(self, path: Path) -> None:
        self.folder = TuningFolder(path)

    def tune(self, gpus: Gpus, history: TrialHistory | None = None) -> TuningEnded:
        log = TrialLog(self.folder)
        log.add(TuningStarted(t=NOON))
        tuner = Tuner(
            self.folder, log, gpus, RUNNER,
            lambda history, only: Search(history.start, TRAINING.space, comparable(history.trials), only),
            NOON + 36_000, lambda: NOON,
        )  # fmt: skip
        ended = tuner.tune(history or TrialHistory(TRAINING.start))
        log.add(ended)
        return ended

    def history(self) -> TrialHistory:
        return TrialHistory.from_entries(TRAINING.start, TuningReader(self.folder).entries())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_trials_run_on_all_gpus_until_the_search_is_done(bench: Bench) -> None:
    gpus = Gpus()
    ended = bench.tune(gpus)
    assert (ended.status, ended.early) == ("finished", False)
    assert ended.verdict is not None
    assert ended.verdict.ratio is not None
    assert all(trial.gpu == gpu for gpu, trial in gpus.ran)
    first = dict(reversed(gpus.ran))
    assert {entry.settings for entry in first.values()} == {TRAINING.start}, "the start is measured on each GPU"
    assert set(first) == set(GPUS)


def test_the_screen_shows_which_trial_runs_on_which_gpu(bench: Bench) -> None:
    meeting = threading.Barrier(2, timeout=60)
    reader, views = TuningReader(bench.folder), []

    def meet(trial: Trial, callbacks: TrialCallbacks) -> None:
        if trial.number in (3, 4):
            if meeting.wait() == 0:
                views.append(reader.poll())
            meeting.wait()

    lock = acquire_lock(bench.folder.lock)
    bench.tune(Gpus(meet))
    os.close(lock)
    running = views[0].running
    assert len({process.trial.gpu for process in running}) == len(running) >= 2


def test_a_trial_that_is_measured_when_another_is_aborted_is_kept(bench: Bench) -> None:
    def end(trial: Trial, callbacks: TrialCallbacks) -> Measurement | None:
        while trial.number == 3 and not callbacks.aborted():
            continue
        return Measurement(outcome="aborted", seconds=1.0) if trial.number == 2 else None

    bench.tune(Gpus(end, gpus=GPUS[:2]))
    assert [completed.trial.number for completed in bench.history().trials] == [1, 3]


def test_a_gpu_that_vanishes_loses_its_trial_which_runs_on_another(bench: Bench) -> None:
    lost: list[Trial] = []

    def vanish(trial: Trial, callbacks: TrialCallbacks) -> None:
        if trial.gpu == "GPU-b" and trial.settings != TRAINING.start and not lost:
            lost.append(trial)
            raise GpuLostError("GPU-b")

    gpus = Gpus(vanish)
    assert bench.tune(gpus).status == "finished"
    position = next(position for position, (_, trial) in enumerate(gpus.ran) if trial is lost[0])
    assert all(gpu != "GPU-b" for gpu, _ in gpus.ran[position + 1 :])
    completed = [entry.tried for entry in TuningReader(bench.folder).entries() if isinstance(entry, TrialCompleted)]
    assert all(entry.measurement.outcome != "failed" for entry in completed)
    assert (lost[0].settings, "GPU-b") not in [(entry.trial.settings, entry.trial.gpu) for entry in completed]


def test_without_a_gpu_the_tuning_fails_and_can_go_on(bench: Bench) -> None:
    def vanish(trial: Trial, callbacks: TrialCallbacks) -> None:
        raise GpuLostError(trial.gpu)

    ended = bench.tune(Gpus(vanish))
    assert ended.status == "failed"
    assert NO_GPU_LEFT in ended.sentence
    assert bench.tune(Gpus(), bench.history()).status == "finished"


def test_a_tuning_that_is_resumed_uses_the_gpus_that_are_still_there(bench: Bench) -> None:
    machine = box(*(replace(make_gpu("RTX 3090"), uuid=f"GPU-{name}") for name in "bc"))
    with open_gpus(tuning_record(gpu_uuids=("GPU-a", "GPU-b")), bench.folder, machine) as gpus:
        assert gpus.gpus == ("GPU-b",)
    with (
        pytest.raises(LaunchError, match=NO_GPU_LEFT),
        open_gpus(tuning_record(gpu_uuids=("GPU-a",)), bench.folder, machine),
    ):
        pass
    with open_gpus(tuning_record(), bench.folder, machine) as gpus:
        assert gpus.gpus == (None,)


def test_the_preset_is_checked_on_a_gpu_that_is_still_there() -> None:
    def vanish(trial: Trial, callbacks: TrialCallbacks) -> None:
        if trial.gpu is None and len(gpus.ran) < 2:
            raise GpuLostError("GPU-a")

    gpus = Gpus(vanish)
    request = RUNNER.with_start(TRAINING.start).base
    assert run_preset(request, gpus, TrialCallbacks()).outcome == "measured"
    assert [gpu for gpu, _ in gpus.ran] == ["GPU-a", "GPU-b"]


def test_a_stopped_tuning_ends_all_trials_and_goes_on_where_it_was(bench: Bench) -> None:
    def stop(trial: Trial, callbacks: TrialCallbacks) -> Measurement | None:
        if trial.number == 8:
            bench.folder.abort()
        return Measurement(outcome="aborted", seconds=1.0) if callbacks.aborted() else None

    assert bench.tune(Gpus(stop)).status == "aborted"
    measured = len(bench.history().trials)
    bench.folder.control.unlink()
    assert bench.tune(Gpus(), bench.history()).status == "finished"
    numbers = [completed.trial.number for completed in bench.history().trials]
    assert len(set(numbers)) == len(numbers) > measured


def test_the_settings_that_a_script_sets_itself_are_the_start_on_each_gpu(bench: Bench) -> None:
    script_start = TRAINING.start.changed(learning_rate=1e-3)

    def only_first(trial: Trial, callbacks: TrialCallbacks) -> None:
        gpus.script_start = script_start if trial.number == 1 else None

    gpus = Gpus(only_first)
    bench.tune(gpus)
    assert gpus.ran[0][1].settings == TRAINING.start
    assert all(trial.settings.learning_rate == 1e-3 for _, trial in gpus.ran[1:])
    assert set(gpus.starts[1:]) == {script_start}


def uuids(*names: str) -> tuple[str, ...]:
    return tuple(f"GPU-{name}" for name in names)


def machine(*names: str, cores: int = 16) -> Inventory:
    gpus = [replace(make_gpu("RTX 3090"), index=index, uuid=uuid) for index, uuid in enumerate(uuids(*names))]
    inventory = box(*gpus)
    return replace(inventory, cpu=replace(inventory.cpu, affinity_cores=cores, quota_cores=None))


def test_each_trial_has_one_gpu_and_the_same_part_of_the_cores() -> None:
    seen = inventory_of_trial(machine("a", "b", "c", "d"), uuids("b", "c", "d"))
    assert [gpu.uuid for gpu in seen.gpus] == ["GPU-b"]
    assert seen.cpu.usable_cores == 5  # a third of 16


def test_the_gpu_and_the_threads_win_over_the_jobs_own_environment() -> None:
    job = CommandJob(command=("python", str(SCRIPT)), env={"CUDA_VISIBLE_DEVICES": "0,1", "MODE": "x"})
    request = LaunchRequest(job=job, resolved=resolved(), interpreter=None, cwd=Path("/"), environ={"HOME": "/h"})
    bound = bind(request, "GPU-b", 5)
    assert bound.environ == {"HOME": "/h", "CUDA_VISIBLE_DEVICES": "GPU-b", "OMP_NUM_THREADS": "5"}
    assert isinstance(bound.job, CommandJob)
    assert bound.job.env == {"CUDA_VISIBLE_DEVICES": "GPU-b", "MODE": "x"}


def test_the_free_gpus_of_the_best_kind_are_chosen() -> None:
    seen = [GpuOccupancy(uuid, uuid) for uuid in uuids("a", "b", "c")]
    seen[1] = replace(seen[1], holder="alice: python train.py")
    assert choose_gpus(machine("a", "b", "c"), seen) == uuids("a", "c")
    small = machine("a", "b", "c")
    small = replace(small, gpus=(replace(make_gpu("T4"), index=0, uuid="GPU-a"), *small.gpus[1:]))
    assert choose_gpus(small, seen) == uuids("c")


def test_without_a_free_gpu_it_says_who_has_them() -> None:
    taken = GpuOccupancy("GPU-a", "GPU 0", "alice: python train.py")
    with pytest.raises(SettingsError, match=r"GPU 0: alice: python train\.py"):
        choose_gpus(machine("a"), [taken])
    with pytest.raises(SettingsError, match="need GPUs"):
        free_gpus(BuiltinJob(), box(), None, list)
    with pytest.raises(SettingsError, match="CPU-only"):
        free_gpus(BuiltinJob(), machine("a", "b"), python("2.13.0+cpu", None), list)
