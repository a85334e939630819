"""Trials on the workers of a cluster: which workers are taken, and what becomes of the trial of one that is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.cluster_workers import FakeWorker
from tests.fakes.inventories import box, card
from tests.tuning.builders import resolved
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.store.record import resolved_to_json
from tuner_tui.settings.job import CommandJob
from tuner_tui.tuning.parallel.parallel_tuner import tune_side_by_side
from tuner_tui.tuning.parallel.workers import (
    TrialOrder,
    TrialWorker,
    WorkerLostError,
    WorkerPlace,
    WorkerSlots,
    take_workers,
)
from tuner_tui.tuning.process.trial_log import TrialCompleted, TrialLog, read_entries
from tuner_tui.tuning.process.tuner import TrialHistory, Tuner
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.store import TuningFolder, TuningRecord, write_tuning_record
from tuner_tui.tuning.trial import Measurement, Trial, TrialProtocol
from tuner_tui.tuning.trials.runner import TrialCallbacks, TrialReport

NOON = 1_000_000.0
JOB = CommandJob(command=("python", "train.py"), apply="inject")
REQUEST = LaunchRequest(job=JOB, resolved=resolved(), cwd=Path("/"), environ={"TUNER_STATE_DIR": "/nowhere"})
LOST = WorkerLostError("The process died.")


def gpu(name: str, kind: str = "RTX 3090") -> Gpu:
    return replace(card(kind), uuid=f"GPU-{name}")


def on_card(host: str, one: Gpu, problem: str = "") -> WorkerPlace:
    return WorkerPlace(host, one.uuid, box(one), problem)


def on_node(host: str) -> WorkerPlace:
    return WorkerPlace(host, None, box())


def record(cwd: Path = Path("/"), most_gpus: int | None = None) -> TuningRecord:
    start = resolved_to_json(resolved())
    return TuningRecord(
        id="t001", title="x", created_t=1.0, job=JOB, **start, cwd=str(cwd), most_minutes=9.0, on="ray",
        most_gpus=most_gpus,
    )  # fmt: skip


def take(*workers: FakeWorker, most_gpus: int | None = None) -> WorkerSlots:
    tuning: tuple[Path, TuningRecord, dict[str, str]] = (Path("/nowhere"), record(most_gpus=most_gpus), {})
    return replace(take_workers(workers, tuning, start_s=60, more_s=0.0), return_s=0.2)


def test_workers_of_the_best_kind_are_taken_and_the_others_given_back() -> None:
    big, small = FakeWorker([on_card("n2", gpu("b"))]), FakeWorker([on_card("n1", gpu("s", "T4"))])
    other, late = FakeWorker([on_card("n1", gpu("a"))]), FakeWorker([None])
    slots = take(big, small, other, late)
    assert slots.cards == ("GPU-a", "GPU-b")
    assert [one.uuid for one in slots.inventory.gpus] in (["GPU-a"], ["GPU-b"])
    assert [one.released for one in (big, small, other, late)] == [False, True, False, True]
    assert take(*(FakeWorker([on_card("n", gpu(name))]) for name in "abc"), most_gpus=2).cards == ("GPU-a", "GPU-b")


def test_nodes_without_gpus_are_named_by_their_host() -> None:
    assert take(*(FakeWorker([on_node(host)]) for host in ("n1", "n2", "n1"))).cards == ("n1", "n1/2", "n2")


def test_without_a_worker_that_can_run_trials_it_says_why() -> None:
    with pytest.raises(LaunchError, match="On n7: /nowhere is not there"):
        take(FakeWorker([on_node("n1")]), FakeWorker([on_card("n7", gpu("a"), "/nowhere is not there")]))
    with pytest.raises(LaunchError, match="No worker of the cluster could be started"):
        take()


def test_a_worker_sees_the_folder_of_its_own_tuning_only(tmp_path: Path) -> None:
    worker, own = TrialWorker(on_gpu=False, cores=2), record(tmp_path)
    environ = {"TUNER_STATE_DIR": str(tmp_path)}
    assert "all nodes must share the state folder" in worker.place(tmp_path, own, environ).problem
    write_tuning_record(TuningFolder(tmp_path), own)
    place = worker.place(tmp_path, own, environ)
    assert (place.problem, place.card, place.inventory.cpu.usable_cores <= 2) == ("", None, True)
    another = own.model_copy(update={"created_t": 2.0})  # a folder of the same name on a disk of the node's own
    assert "all nodes must share" in worker.place(tmp_path, another, environ).problem
    write_tuning_record(TuningFolder(tmp_path), moved := record(tmp_path / "gone"))
    assert "The folder of the training" in worker.place(tmp_path, moved, environ).problem


def tune(path: Path, *workers: FakeWorker) -> tuple[list[str], dict[int, list[str]]]:
    """Tune on these workers; return the outcomes of the trials and the workers that each of them ran on."""
    folder, slots, training = TuningFolder(path), take(*workers), workers[0].training
    tuner = Tuner(
        folder, TrialLog(folder), slots.runner(REQUEST, TrialProtocol()),
        lambda known, compare_only: Search(known.start, training.space, known.trials, compare_only),
        NOON + 36_000, lambda: NOON,
    )  # fmt: skip
    runner = slots.runner(REQUEST, TrialProtocol())
    assert tune_side_by_side(tuner, runner, slots, TrialHistory(training.start)).status == "finished"
    completed = [entry.tried for entry in read_entries(folder) if isinstance(entry, TrialCompleted)]
    ran: dict[int, list[str]] = {}
    for name, worker in slots.workers.items():
        assert isinstance(worker, FakeWorker)
        for number in worker.ran:
            ran.setdefault(number, []).append(name)
    return [one.measurement.outcome for one in completed], ran


@pytest.mark.parametrize("again", [on_card("n1", gpu("a")), on_card("n1", gpu("z"))], ids=["returns", "elsewhere"])
def test_the_trial_of_a_lost_worker_runs_again(tmp_path: Path, again: WorkerPlace) -> None:
    losses: list[int] = []

    def dies(order: TrialOrder) -> WorkerLostError | None:
        if losses or order.trial.number <= 2:
            return None
        losses.append(order.trial.number)
        return LOST

    mortal = FakeWorker([on_card("n1", gpu("a")), again], dies)
    outcomes, ran = tune(tmp_path, mortal, FakeWorker([on_card("n1", gpu("b"))]))
    [number] = losses
    assert len(ran[number]) == 2
    assert "failed" not in outcomes
    returned = again.card == "GPU-a"
    assert mortal.released is not returned, "a worker that is elsewhere is another one"
    assert (mortal.ran[-1] == number) is not returned


def run_one(worker: FakeWorker, callbacks: TrialCallbacks) -> TrialReport:
    runner = take(worker).runner(REQUEST, TrialProtocol()).on_card("n1")
    return runner.run(Trial(number=3, purpose="knob", settings=REQUEST.resolved.settings, reason=""), callbacks)


def test_a_command_that_cannot_be_launched_ends_the_tuning() -> None:
    worker = FakeWorker([on_node("n1")], lambda order: "no-such-program was not found.")
    with pytest.raises(LaunchError, match="n1: no-such-program was not found"):
        run_one(worker, TrialCallbacks())


def test_the_run_of_a_trial_is_reported_also_if_it_ended_at_once() -> None:
    launched: list[Path] = []
    measured = Measurement(outcome="measured", seconds=1.0, run_id="r003")
    worker = FakeWorker([on_node("n1")], lambda order: TrialReport(measured, order.trial.settings))
    assert run_one(worker, TrialCallbacks(launched=lambda run: launched.append(run.path))).measurement == measured
    assert launched == [Path("/nowhere/runs/r003")]
