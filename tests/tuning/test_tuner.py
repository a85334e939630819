"""The loop of a tuning, its folder and its view; no training, no process."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fakes.inventories import box, make_gpu, python
from tests.fakes.listed_search import RUNNER, ListedGpus, ListedSearch, measured
from tests.tuning.builders import SCRIPT, resolved, tuning_record
from tuner_tui.core.file_locks import acquire_lock, wait_unlocked
from tuner_tui.core.numbered_folders import FolderNotFoundError
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.memory.fit import PeakModel
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.model import AppliedRemedy, Origin, OriginKind, Resolved, Settings
from tuner_tui.tuning.create import TunerSpec, create_tuning, start_tuning, tuning_title
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.search.space import WORKERS
from tuner_tui.tuning.store import (
    AlreadyTuningError,
    TuningFolder,
    TuningOptions,
    ensure_no_other_tuning,
    find_tuning,
    list_tunings,
    read_tuning_record,
    tunings_dir,
)
from tuner_tui.tuning.time_budget import TimeBudget, minutes_for
from tuner_tui.tuning.trial import (
    CompletedTrial,
    Measurement,
    Purpose,
    StepBreakdown,
    Trial,
    TuningConclusion,
    WholeJob,
)
from tuner_tui.tuning.trial_log import (
    LogEntry,
    TrialCompleted,
    TrialLog,
    TrialStarted,
    TuningEnded,
    TuningReader,
    TuningStarted,
    decode_entry,
    encode_entry,
)
from tuner_tui.tuning.trial_runner import TrialReport
from tuner_tui.tuning.tuner import TrialHistory, Tuner, TuningContext, estimate_prior

START = Settings(per_device_train_batch_size=8)
NOON = 1_000_000.0


class Bench:
    """One tuning with a clock that stands until it is moved."""

    def __init__(self, root: Path, minutes: float = 10.0) -> None:
        path = root / "t001"
        path.mkdir(exist_ok=True)
        self.folder = TuningFolder(path)
        self.time = NOON
        self.deadline = NOON + minutes * 60

    def tune(self, runner: ListedGpus, history: TrialHistory | None = None) -> TuningEnded:
        log = TrialLog(self.folder)
        log.add(TuningStarted(t=self.time, capacity_bytes=100, limit_bytes=97))
        tuner = Tuner(self.folder, log, runner, RUNNER, ListedSearch.after, self.deadline, lambda: self.time)
        ended = tuner.tune(history or TrialHistory(START))
        log.add(ended)
        return ended

    def known(self) -> TrialHistory:
        return TrialHistory.from_entries(START, TuningReader(self.folder).entries())

    def resumed(self, busy: str = "") -> TrialHistory:
        """The history that a tuner started now goes on from."""
        TrialLog(self.folder).add(TuningStarted(t=self.time, busy=busy))
        return self.known()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def micros(runner: ListedGpus) -> list[int]:
    return [trial.settings.per_device_train_batch_size for trial in runner.ran]


def test_what_is_written_is_what_is_read(bench: Bench) -> None:
    runner = ListedGpus([measured(100), measured(150, peak_bytes=50), measured(120), measured(151)])
    ended = bench.tune(runner)
    assert (micros(runner), ended.status) == ([8, 16, 32, 16], "finished")
    view = TuningReader(bench.folder).poll()
    assert (view.status, view.id, view.capacity_bytes, view.limit_bytes) == ("finished", "t001", 100, 97)
    assert [entry.measurement.throughput for entry in view.tried] == [100, 150, 120, 151]
    assert view.tried[1].trial.settings == START.changed(per_device_train_batch_size=16)
    assert view.skipped[0].knob == "torch_compile"
    assert view.verdict is not None
    assert (view.verdict.ratio, view.verdict.winner.per_device_train_batch_size) == (1.5, 16)
    assert view.running == ()


def test_the_view_while_a_trial_runs(bench: Bench) -> None:
    reader, seen = TuningReader(bench.folder), []
    lock = acquire_lock(bench.folder.lock)
    bench.tune(ListedGpus([measured()] * 4, before=lambda number: seen.append(reader.poll())))
    first, second = seen[:2]
    assert first.status == "running"
    [first_trial], [two] = first.running, second.running
    assert (first_trial.run, first_trial.left_low_s) == ("r001", None)
    assert (two.run, two.trial.number, two.t, two.left_low_s, two.left_high_s) == ("r002", 2, NOON, 10.0, 20.0)
    assert len(second.tried) == 1
    assert TuningReader(bench.folder).poll().status == "finished", "though the lock is still held"
    assert lock >= 0


def test_the_first_trial_shows_what_nobody_chose(bench: Bench) -> None:
    shown_start = START.changed(per_device_train_batch_size=24)
    runner = ListedGpus([measured()] * 4, seen=shown_start, unreachable=frozenset({"precision"}))
    bench.tune(runner)
    assert set(micros(runner)[1:]) <= {16, 24, 32}
    assert runner.starts[1:] == [shown_start] * 3
    assert bench.known().trials[0].trial.settings == shown_start
    assert bench.known().unreachable == {"precision"}


@pytest.mark.parametrize(
    ("start", "candidate", "difference"),
    [
        ({"repeated_samples": (0, 0, 0, 0)}, {"repeated_samples": (0, 0, 1, 4, 8)}, "draws 50 % of the samples"),
        ({"dataset_samples": 1000}, {"dataset_samples": 500}, "trains on 500 samples, the current settings on 1,000"),
        ({"repeated_samples": (0, 0, 0, 0)}, {"repeated_samples": (0, 0, 0, 1)}, ""),
        ({"repeated_samples": (0, 1, 3, 7)}, {"repeated_samples": (0, 1, 3, 7, 15)}, ""),
        ({"dataset_samples": 1000}, {"dataset_samples": None}, ""),
    ],
)
def test_a_trial_on_other_samples_than_the_starts_is_no_candidate(
    bench: Bench, start: dict[str, Any], candidate: dict[str, Any], difference: str
) -> None:
    ended = bench.tune(ListedGpus([measured(100, **start), measured(300, **candidate), measured(90), measured(100)]))
    tried = bench.known().trials[1].measurement
    assert tried.outcome == ("other-data" if difference else "measured")
    assert difference in tried.sentence
    search = Search(START, ListedSearch.after(bench.known()).space, bench.known().trials)
    fastest = search.best
    assert fastest is not None
    assert (fastest.settings == START) == bool(difference)
    assert ended.status == "finished"


def test_a_loader_that_waits_on_idle_cores_gets_more_workers_than_cores() -> None:
    def counts(**shares: float) -> tuple[object, ...]:
        waiting = measured(breakdown=StepBreakdown(**shares))
        trial = Trial(number=1, purpose="start", settings=START, reason="")
        context = setting(box(cores=2), SCRIPT)
        return context.space(TrialHistory(START).after(trial, TrialReport(waiting, START))).candidates[WORKERS]

    assert counts(data_wait=0.8, cpu_busy=0.1) == (0, 1, 2, 4, 6, 8, 12, 16)
    assert counts(data_wait=0.8, cpu_busy=0.9) == (0, 1, 2), "they would compete for the cores"
    assert counts(data_wait=0.05, cpu_busy=0.1) == (0, 1, 2)
    assert counts(data_wait=0.8) == (0, 1, 2)


def test_no_workers_are_tried_that_would_repeat_a_stream() -> None:
    context = setting(box(cores=8), SCRIPT)
    history = TrialHistory(START).after(
        Trial(number=1, purpose="start", settings=START, reason=""), TrialReport(measured(workers_repeat=True), START)
    )
    assert context.space(history).candidates["dataloader_num_workers"] == (0, 1)
    reasons = {change.reason for change in context.space(history).rejected if change.knob == "dataloader_num_workers"}
    assert reasons == {"the data is a stream that does not divide itself: each worker would deliver all samples"}
    four = START.changed(dataloader_num_workers=4)
    assert context.space(replace(history, start=four)).candidates["dataloader_num_workers"] == (4,)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_an_abort_keeps_what_was_measured_and_is_gone_on_with(bench: Bench, number: int) -> None:
    answers = [measured(100), measured(150), measured(120), measured(151)]

    def abort(now: int) -> None:
        if now == number:
            bench.folder.abort()

    ended = bench.tune(ListedGpus(answers, before=abort))
    assert ended.status == "aborted"
    assert len(bench.known().trials) == number - 1
    assert (ended.verdict is None) == (number == 1)
    bench.folder.control.unlink()
    rest = ListedGpus(answers[number - 1 :])
    assert bench.tune(rest, bench.known()).status == "finished"
    assert len(rest.ran) == 4 - (number - 1), "nothing is measured twice"
    assert TuningReader(bench.folder).poll().status == "finished"


@pytest.mark.parametrize("purpose", ["confirm", "knob"])
def test_what_a_busy_machine_left_open_is_measured_again(bench: Bench, purpose: Purpose) -> None:
    log = TrialLog(bench.folder)
    purposes: tuple[Purpose, ...] = ("start", "noise", "knob", purpose, purpose)
    for number, each in enumerate(purposes, 1):
        trial = Trial(number=number, purpose=each, settings=START, reason="")
        log.add(TrialCompleted(t=1.0, tried=CompletedTrial(trial, measured())))
    verdict = TuningConclusion(winner=START, sentence="The machine was busy.", disturbed=True)
    log.add(TuningEnded(t=2.0, status="finished", verdict=verdict))
    busy = [completed.trial.purpose for completed in bench.resumed("other processes used 90 % of the CPU").trials]
    assert busy == list(purposes), "nothing would be measured better"
    log.add(TuningEnded(t=2.0, status="finished", verdict=verdict))
    kept = [completed.trial.purpose for completed in bench.resumed().trials]
    assert kept == (["start", "noise", "knob"] if purpose == "confirm" else ["start"])
    assert len(TuningReader(bench.folder).poll().tried) == len(kept), "what is measured again is not shown twice"


def test_a_change_that_cannot_be_launched_is_a_failed_trial(bench: Bench) -> None:
    def launch(number: int) -> None:
        if number == 2:
            raise LaunchError("The command has no place for it.")

    ended = bench.tune(ListedGpus([measured(100), measured(120), measured(120)], before=launch))
    assert (ended.status, bench.known().trials[1].measurement.outcome) == ("finished", "failed")
    with pytest.raises(LaunchError):
        Bench(bench.folder.path).tune(ListedGpus([], before=lambda _: launch(2)))


def test_where_time_is_short_start_and_best_are_compared(tmp_path: Path) -> None:
    bench = Bench(tmp_path, minutes=2.0)
    runner = ListedGpus([measured(100, seconds=20.0), measured(101)])
    ended = bench.tune(runner)
    assert (ended.status, ended.early) == ("finished", True)
    assert (ended.sentence, ended.needed_minutes) == (
        "Time was short: the next trial and its comparison need 3 min.",
        3,
    )
    assert [trial.purpose for trial in runner.ran] == ["start", "confirm"]


def test_what_was_closed_for_want_of_time_is_gone_on_with(tmp_path: Path) -> None:
    bench = Bench(tmp_path, minutes=2.0)
    bench.tune(ListedGpus([measured(100, seconds=20.0), measured(101)]))
    bench.deadline += 3600
    more = ListedGpus([measured(130), measured(131)])
    ended = bench.tune(more, bench.resumed())
    assert [trial.purpose for trial in more.ran] == ["batch", "confirm"]
    assert (ended.status, ended.early, ended.sentence) == ("finished", False, "")
    assert [entry.trial.purpose for entry in bench.known().trials] == ["start", "knob", "batch", "confirm"]
    assert [completed.trial.purpose for completed in TuningReader(bench.folder).poll().tried][1] == "confirm", (
        "as it was run"
    )


def test_a_trial_that_time_lacks_for_gives_way_to_a_cheaper_one() -> None:
    start, plain = START, START.changed(dataloader_num_workers=2)
    compiled = START.changed(torch_compile=True)
    tried = [CompletedTrial(Trial(number=1, purpose="start", settings=start, reason=""), measured(seconds=17.0))]
    budget = TimeBudget(tried, start, left_s=113.0)
    assert not budget.fits(Trial(number=2, purpose="knob", settings=compiled, reason=""))
    assert budget.fits(Trial(number=2, purpose="knob", settings=plain, reason=""))
    after = TimeBudget(tried, plain, left_s=80.0)
    assert not after.fits(Trial(number=2, purpose="batch", settings=start.changed(tf32=True), reason=""))
    assert after.fits(Trial(number=2, purpose="confirm", settings=start, reason="")), (
        "a winner is compared first of all"
    )
    assert minutes_for(61) == 2


def test_too_little_time_for_any_trial_says_how_much_is_needed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, minutes=0.1)
    trial = Trial(number=1, purpose="start", settings=START, reason="")
    history = TrialHistory(START).after(trial, TrialReport(measured(seconds=40.0), START))
    runner = ListedGpus([])
    ended = bench.tune(runner, history)
    assert (runner.ran, ended.status, ended.early) == ([], "finished", True)
    assert ended.sentence == "Time was short: the next trial and its comparison need 5 min."
    assert ended.needed_minutes == 5, "forty seconds and some, two pairs and the check"


def test_a_trial_is_predicted_before_it_starts_and_limited_once_one_was_measured(bench: Bench) -> None:
    runner = ListedGpus([measured(100, seconds=20.0), measured(150), measured(120), measured(151)])
    log = TrialLog(bench.folder)
    search, clock = ListedSearch.after, lambda: bench.time
    Tuner(bench.folder, log, runner, RUNNER, search, bench.deadline, clock, predicted_s=12.0).tune(TrialHistory(START))
    started = [entry for entry in TuningReader(bench.folder).entries() if isinstance(entry, TrialStarted)]
    assert [trial.expected_s for trial in started[:2]] == [12.0, 20.0]
    assert [(trial.expected_s, trial.give_up_s) for trial in runner.callbacks[:2]] == [(12.0, None), (20.0, 80.0)]


def test_a_second_tuning_is_refused_while_one_is_under_way(bench: Bench) -> None:
    ensure_no_other_tuning(bench.folder.path.parent)
    lock = acquire_lock(bench.folder.lock)
    with pytest.raises(AlreadyTuningError, match="t001"):
        ensure_no_other_tuning(bench.folder.path.parent)
    ensure_no_other_tuning(bench.folder.path.parent, bench.folder)
    assert lock >= 0


def test_time_that_ends_in_a_trial_leaves_the_best_so_far(bench: Bench) -> None:
    over = Measurement(outcome="aborted", seconds=1.0, sentence="The time limit of the tuning was reached.")
    ended = bench.tune(ListedGpus([measured(100), measured(150), over]))
    assert ended.status == "finished"
    assert ended.verdict is not None
    assert ended.verdict.winner.per_device_train_batch_size == 16
    assert ended.verdict.ratio is None
    assert "time limit" in ended.verdict.sentence


def test_time_that_ends_before_the_first_figure_is_a_failure(bench: Bench) -> None:
    ended = bench.tune(ListedGpus([Measurement(outcome="aborted", seconds=1.0)]))
    assert (ended.status, ended.verdict) == ("failed", None)
    assert "before anything was measured" in ended.sentence


def test_a_torn_and_an_unknown_line_are_not_there(bench: Bench) -> None:
    bench.tune(ListedGpus([measured()] * 4))
    whole = bench.folder.trials.read_bytes()
    torn = whole.splitlines(keepends=True)[2][:40]
    bench.folder.trials.write_bytes(whole + b'{"kind":"of-the-future","v":9}\n' + torn)
    assert TuningReader(bench.folder).entries() == [decode_entry(line) for line in whole.splitlines()]
    TrialLog(bench.folder).add(TuningStarted(t=1.0))
    assert TuningReader(bench.folder).entries()[-1] == TuningStarted(t=1.0), "a line after a torn one is whole"


def test_a_tuning_that_nobody_works_on_and_that_did_not_end_was_killed(bench: Bench) -> None:
    log = TrialLog(bench.folder)
    trial = ListedSearch.after(TrialHistory(START)).proposals[0]
    log.add(TuningStarted(t=1.0))
    log.add(TrialStarted(t=2.0, trial=trial, run="r001"))
    view = TuningReader(bench.folder).poll()
    assert (view.status, view.running) == ("killed", ())
    lock = acquire_lock(bench.folder.lock)
    assert TuningReader(bench.folder).poll().status == "running"
    assert lock >= 0


def test_a_tuning_that_was_just_made_is_about_to_run(bench: Bench) -> None:
    made = bench.folder.path.stat().st_mtime
    reader = TuningReader(bench.folder)
    assert reader.poll(now=made + 5).status == "running"
    assert reader.poll(now=made + 60).status == "killed"


def test_entries_survive_the_way_to_the_file() -> None:
    search = ListedSearch.after(TrialHistory(START))
    trial = search.proposals[0]
    history = TrialHistory(START).after(replace(trial, bound=0.25), TrialReport(measured(), START))
    verdict = TuningConclusion(winner=START, sentence="Es bleibt · so", ratio=1.0, start=measured(), best=measured())
    entries: list[LogEntry] = [
        TuningStarted(t=1.0), TrialStarted(t=1.0, trial=trial, run="r001", left_low_s=1.0),
        TrialCompleted(t=1.0, tried=history.trials[0]),
        TuningEnded(t=1.0, status="failed", sentence="x"), TuningEnded(t=1.0, status="finished", verdict=verdict),
    ]  # fmt: skip
    assert [decode_entry(encode_entry(entry)) for entry in entries] == entries


def test_an_endless_bound_is_written_as_none() -> None:
    trial = Trial(number=1, purpose="batch", settings=START, reason="", bound=float("inf"))
    read = decode_entry(encode_entry(TrialStarted(t=1.0, trial=trial, run="r001")))
    assert isinstance(read, TrialStarted)
    assert read.trial.bound is None


def test_a_new_folder_is_private_and_holds_no_secret(tmp_path: Path) -> None:
    job = CommandJob(command=("python", "train.py", "--token", "hf_abcdefghijklmnopqrst"), apply="inject")
    environ = {"TUNER_STATE_DIR": str(tmp_path), "HF_TOKEN": "secret"}
    request = LaunchRequest(job=job, resolved=resolved(learning_rate=1e-3), cwd=tmp_path, environ=environ)
    folder = create_tuning(request, TuningOptions(free_batch=True, most_minutes=3, save_as="mine", objective="steady"))
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert folder.record.stat().st_mode & 0o777 == 0o600
    assert "hf_abc" not in folder.record.read_text()
    assert "secret" not in folder.record.read_text()
    record = read_tuning_record(folder)
    assert record.resolved == request.resolved
    assert (record.free_batch, record.most_minutes, record.save_as, record.id) == (True, 3, "mine", "t001")
    assert record.objective == "steady"
    assert find_tuning("1", tmp_path / "tunings") == folder
    with pytest.raises(FolderNotFoundError, match="The newest is t001"):
        find_tuning("t009", tmp_path / "tunings")


def test_the_remedies_that_were_applied_before_are_kept(tmp_path: Path) -> None:
    remedy = AppliedRemedy("more-workers", "workers 2 → 8", "data-wait", "r006", {WORKERS: 2})
    start = resolved()
    start = Resolved(start.settings, {**start.origins, WORKERS: Origin(OriginKind.REMEDY, "r006", remedy)})
    request = LaunchRequest(job=BuiltinJob(), resolved=start, cwd=tmp_path, environ={"TUNER_STATE_DIR": str(tmp_path)})
    record = read_tuning_record(create_tuning(request, TuningOptions()))
    assert record.resolved.last_remedies == start.last_remedies == (remedy,)


def test_titles() -> None:
    assert tuning_title("demo", BuiltinJob()) == "demo"
    assert tuning_title(None, CommandJob(command=("python", "my train.py"))) == "python 'my train.py'"
    assert len(tuning_title(None, CommandJob(command=("x" * 500,)))) == 80


def test_the_least_room_of_a_shared_gpu_and_the_size_of_the_data_are_known() -> None:
    history = TrialHistory(START)
    trial = Trial(number=1, purpose="start", settings=START, reason="")
    for room, samples in ((None, None), (90, 40), (70, 41), (80, None)):
        history = history.after(trial, TrialReport(measured(room_bytes=room, dataset_samples=samples), START))
    assert (history.room_bytes, history.dataset_samples) == (70, 40)
    assert (TrialHistory(START).room_bytes, TrialHistory(START).dataset_samples) == (None, None)


def test_what_was_ended_from_outside_is_tried_again_by_whoever_goes_on() -> None:
    trial = Trial(number=1, purpose="start", settings=START, reason="")
    killed = Measurement(outcome="failed", seconds=1.0, passing=True)
    over: list[LogEntry] = [TuningEnded(t=1.0, status="finished"), TuningStarted(t=2.0)]
    done = [TrialCompleted(t=1.0, tried=CompletedTrial(trial, entry)) for entry in (killed, measured())]
    assert len(TrialHistory.from_entries(START, [*done]).trials) == 2
    assert [entry.measurement.outcome for entry in TrialHistory.from_entries(START, [*done, *over]).trials] == [
        "measured"
    ]


GIB = 2**30
CHOSEN = resolved(per_device_train_batch_size=8)
BERT = BuiltinJob(model="bert-base")


def setting(inventory: Inventory, job: Job = BERT, prior: PeakModel | None = None, **options: Any) -> TuningContext:
    record = tuning_record(CHOSEN, job=job, **options)
    return TuningContext(record, TunerSpec(job), inventory, python(), prior)


def known(**figures: Any) -> TrialHistory:
    trial = Trial(number=1, purpose="start", settings=CHOSEN.settings, reason="")
    return TrialHistory(CHOSEN.settings).after(
        trial, TrialReport(measured(**figures), CHOSEN.settings, frozenset({"precision"}))
    )


def test_what_the_trials_showed_bounds_what_is_tried() -> None:
    space = setting(box(make_gpu("RTX 3090"))).space(known(room_bytes=20 * GIB, dataset_samples=100))
    assert space.capacity_bytes == 20 * GIB
    assert space.dataset_size == 100
    assert "precision" in space.unreachable
    assert "bf16" not in space.candidates.get("precision", ())


def test_the_whole_job_is_compared_unless_steady_speed_is_asked_for() -> None:
    """20 samples a step for 300 steps."""
    long = known(speed=40.0, step_time_s=0.5, job_steps=300)
    assert setting(box()).space(long).whole_job == WholeJob(steps=300, samples=6000.0)
    assert setting(box(), objective="steady").space(long).whole_job is None
    assert setting(box()).space(known()).whole_job is None


def test_on_the_host_a_limit_or_its_own_memory_is_the_bound() -> None:
    assert setting(box()).space(TrialHistory(CHOSEN.settings)).capacity_bytes == box().memory.usable_bytes
    assert setting(box(), memory_limit_bytes=3 * GIB).space(TrialHistory(CHOSEN.settings)).capacity_bytes == 3 * GIB


def test_a_command_starts_as_many_processes_as_accelerates_own_file_says(tmp_path: Path) -> None:
    """Each of them takes its part of the data, and of the host's memory."""
    config_file = tmp_path / "accelerate.yaml"
    config_file.write_text("distributed_type: MULTI_GPU\nnum_processes: 2\n")
    launch = ("accelerate", "launch", "--config_file", str(config_file), "train.py")
    job = CommandJob(command=launch, apply="inject")
    assert (
        setting(box(make_gpu("RTX 3090"), make_gpu("RTX 3090")), job).space(TrialHistory(CHOSEN.settings)).processes
        == 2
    )


def test_the_estimate_is_that_of_a_gpu_without_its_context(tmp_path: Path) -> None:
    orders = TunerSpec(BERT, {"TUNER_STATE_DIR": str(tmp_path)})
    result = estimate_prior(box(make_gpu("RTX 3090")), python(), orders, CHOSEN)
    assert result is not None
    assert 1.5 * GIB < result.peak_bytes(1) < 6 * GIB, "weights, gradients and AdamW's states of 110 M parameters"
    assert result.slope_bytes > 0
    assert setting(box(), prior=result).space(TrialHistory(CHOSEN.settings)).prior == result


@pytest.mark.parametrize(("inventory", "job"), [(box(), BERT), (box(make_gpu("RTX 3090")), SCRIPT)])
def test_elsewhere_there_is_no_estimate(inventory: Inventory, job: Job) -> None:
    assert estimate_prior(inventory, python(), TunerSpec(job), CHOSEN) is None


def test_a_start_above_the_data_which_its_own_trial_showed_is_not_the_winner() -> None:
    """Its batches were never as large as asked for, so that it was as fast as anything."""
    small = setting(box())
    now = known(speed=200.0, dataset_samples=5)
    while (trial := Search(now.start, small.space(now), now.trials).propose()) is not None:
        assert trial.settings.per_device_train_batch_size <= 5
        now = now.after(trial, TrialReport(measured(100.0, dataset_samples=5), trial.settings))
    verdict = Search(now.start, small.space(now), now.trials).conclusion
    assert verdict.winner.per_device_train_batch_size <= 5


WAITS = "import signal\nwhile True: signal.pause()"


class State:
    """A state directory, and the tunings of a command that waits for ever."""

    def __init__(self, root: Path) -> None:
        self.environ = {**os.environ, "TUNER_STATE_DIR": str(root), "OMP_NUM_THREADS": "1"}
        self.root = tunings_dir(self.environ)
        self.job = CommandJob(command=(sys.executable, "-c", WAITS), apply="inject")
        self._request = LaunchRequest(
            job=self.job, resolved=resolved(), interpreter=sys.executable, cwd=root, environ=self.environ
        )

    def new(self) -> TuningFolder:
        return create_tuning(self._request, TuningOptions())

    def start(self, folder: TuningFolder) -> None:
        start_tuning(folder, TunerSpec(self.job, self.environ))


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


@pytest.mark.full
def test_of_two_that_begin_in_the_same_moment_one_tunes_and_nothing_of_the_other_is_left(state: State) -> None:
    folders = [state.new(), state.new()]
    both = threading.Barrier(2)
    refused: list[TuningFolder] = []

    def begin(folder: TuningFolder) -> None:
        both.wait()
        try:
            state.start(folder)
        except AlreadyTuningError:
            refused.append(folder)

    threads = [threading.Thread(target=begin, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    live = [folder for folder in folders if folder not in refused]
    try:
        assert len(refused) == 1
        assert [folder.live for folder in live] == [True]
        assert list_tunings(state.root) == live
    finally:
        for folder in live:
            folder.abort()
            wait_unlocked(folder.lock)


def test_a_box_whose_turn_is_taken_is_told_so(state: State) -> None:
    folder = state.new()
    turn = acquire_lock(folder.machine_lock)
    with pytest.raises(AlreadyTuningError, match="starting on this machine"):
        state.start(folder)
    os.close(turn)
    assert list_tunings(state.root) == []


def test_a_tuning_that_has_trials_stays_where_it_may_not_go_on_now(state: State) -> None:
    folder = state.new()
    folder.trials.write_bytes(b"")
    turn = acquire_lock(folder.machine_lock)
    with pytest.raises(AlreadyTuningError):
        state.start(folder)
    os.close(turn)
    assert list_tunings(state.root) == [folder]
