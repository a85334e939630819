"""Each rule finds its cause, and finds nothing where nothing is known to be wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fakes.situations import GB, NOW, PID, box, counters, samples, situation, training
from tuner_tui.advice.diagnose import diagnose, in_past_tense
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.situation import Situation
from tuner_tui.hardware.inventory import GpuProcess
from tuner_tui.hardware.sample import ProcessSample, Sample
from tuner_tui.inspection.first_non_finite import Replay
from tuner_tui.inspection.suspect_batches import StepBatch, Suspects, find_suspects
from tuner_tui.runs.events.run_state import RankState
from tuner_tui.runs.events.types import Checkpoint, Exited, Finished, Hung, OutOfMemory, Raised
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Settings


def test_a_healthy_training_yields_nothing() -> None:
    assert diagnose(situation()) == ()


def test_waiting_for_data_is_told_with_its_share_and_a_remedy() -> None:
    (finding,) = diagnose(situation(state=training(rates={"data_wait_share": 0.4})))
    assert finding.cause == "data-wait"
    assert "200 ms of each 500 ms" in finding.evidence[0]
    assert finding.remedies[0].change == {"dataloader_num_workers": 10}


@pytest.mark.parametrize(("train_s", "confidence"), [(0.5, "likely"), (60.0, "certain")])
def test_a_wait_that_was_measured_briefly_is_not_certain(train_s: float, confidence: str) -> None:
    (finding,) = diagnose(situation(state=training(rates={"data_wait_share": 0.4}, steps={"train_s": train_s})))
    assert finding.confidence == confidence
    assert "faster storage" not in " ".join(remedy.title for remedy in finding.remedies)


@pytest.mark.parametrize("outcome", ["completed", "stopped"])
def test_a_run_that_has_ended_keeps_its_findings_on_speed(outcome: str) -> None:
    waited = training(rates={"data_wait_share": 0.98}, finished=Finished(t=NOW, outcome=outcome), phase="ending")
    idle = (*samples(gpu={}, workers=(99.0,) * 8), replace(samples()[-1], time_s=NOW + 3))
    (finding,) = diagnose(situation(state=waited, now_s=NOW + 3600, samples=idle))
    assert finding.cause == "data-wait"
    assert finding.sentence.startswith("Training waited for data for 98 % of each step: ")
    assert finding.evidence[0].startswith("waited ")
    evaluated = training(steps={"eval_s": 400.0}, finished=Finished(t=NOW, outcome=outcome), phase="ending")
    (finding,) = diagnose(situation(state=evaluated, now_s=NOW + 3600))
    assert finding.sentence == "Evaluation took 57 % of the run's time"


def test_workers_that_ended_before_the_last_step_are_judged_by_what_they_did() -> None:
    waited = training(rates={"data_wait_share": 0.96}, finished=Finished(t=NOW, outcome="completed"), phase="ending")
    gone = tuple(replace(sample, processes=sample.processes[:1]) for sample in samples(1))
    warning = "This DataLoader will create 8 worker processes in total. Our suggested max number of worker in current "
    ended = situation(
        state=waited, samples=(*samples(workers=(2.0,) * 8)[:-2], *gone), log=(f"{warning}system is 2, which",)
    )
    (finding,) = diagnose(ended)
    assert "the workers were slow though they computed little" in finding.sentence
    assert finding.remedies[0].change["dataloader_num_workers"] == 16


@pytest.mark.parametrize(
    ("present", "past"),
    [
        ("Training waits for data for 31 % of each step: the workers wait too", "waited for data waited too"),
        ("The GPU is busy only 30 % of the time and does not wait for data", "was did not wait"),
        ("Rank 1 is slow: the other ranks wait for it for 9 % of each step", "was waited"),
        ("rank 1: waits 3 ms for data and works 4 ms a step", "waited worked"),
        ("Other programs use 81 % of the CPU: training waits for a core 62 % of the time", "used waited"),
        ("1 of 8 workers is busy, the others are idle", "was were"),
        ("98 % of a step passes in the program's own code", "passed"),
        ("Evaluation takes 40 % of the run's time", "took"),
        ("the training's processes use 39 % of one core", "used"),
        ("waits 31 ms of each 100 ms step", "waited"),
        ("the workers are slow though they compute little: they sleep or wait", "were computed slept waited"),
        ("This analysis of 3 uses in thesis.py", "analysis used"),
    ],
)
def test_of_a_run_that_has_ended_findings_say_what_was(present: str, past: str) -> None:
    finding = in_past_tense(Finding("x", "hint", present, (present,), "certain"))
    assert finding.evidence == (finding.sentence,)
    words = finding.sentence.replace(",", "").split()
    assert [word for word in past.split() if word not in words] == []
    assert not {"waits", "is", "are", "takes", "works"} & {*words}


@pytest.mark.parametrize("finished", [None, Finished(t=NOW, outcome="completed")])
def test_a_loss_of_speed_comes_before_settings_that_are_not_in_effect(finished: Finished | None) -> None:
    state = training(
        rates={"data_wait_share": 0.98}, not_injected=("learning_rate",), finished=finished,
        phase="training" if finished is None else "ending",
    )  # fmt: skip
    job = CommandJob(command=("python", "main.py"), apply="inject")
    findings = diagnose(situation(state=state, job=job, chosen=frozenset({"learning_rate"})))
    assert [finding.cause for finding in findings] == ["data-wait", "not-in-effect"]


def test_a_healthy_run_that_has_ended_has_no_findings() -> None:
    done = training(finished=Finished(t=NOW, outcome="completed"), phase="ending")
    assert diagnose(situation(state=done, now_s=NOW + 3600)) == ()


def test_a_run_that_ended_in_warm_up_is_not_judged() -> None:
    young = training(rates={"data_wait_share": 0.9}, steps={"own_steps": 4}, training_since_t=NOW - 2,
                     finished=Finished(t=NOW, outcome="completed"))  # fmt: skip
    assert diagnose(situation(state=young)) == ()


def test_batches_prepared_in_the_training_process_ask_for_workers() -> None:
    waiting = training(rates={"data_wait_share": 0.4})
    (finding,) = diagnose(situation(state=waiting, settings=Settings(), samples=samples(gpu={})))
    assert finding.where == "main-process"
    assert finding.remedies[0].change == {"dataloader_num_workers": 4, "dataloader_persistent_workers": True}


def test_a_training_that_makes_no_step_is_stalled() -> None:
    quiet = training(last_step_t=NOW - 200, last_event_t=NOW - 200)
    idle = samples(gpu={}, workers=(0.0,) * 8)
    assert [finding.cause for finding in diagnose(situation(state=quiet, samples=idle))] == ["stalled"]
    (waiting,) = diagnose(situation(state=quiet))
    assert (waiting.cause, waiting.where) == ("data-wait", "workers"), "its workers, which are busy"
    crowded = situation(state=quiet, inventory=box(cores=2))
    assert [finding.cause for finding in diagnose(crowded)] == ["too-many-workers"]


def test_a_stall_that_was_looked_into_says_what_is_waited_for() -> None:
    hung = Hung(t=NOW - 20, cause="debugger", sentence="The training waits at a prompt.", evidence=("in train.py:3",))
    quiet = training(last_step_t=NOW - 200, last_event_t=NOW - 20, hung=hung)
    (finding,) = diagnose(situation(state=quiet, samples=samples(gpu={}, workers=(0.0,) * 8)))
    assert (finding.cause, finding.where) == ("stalled", "debugger")
    assert finding.sentence.endswith("The training waits at a prompt.")
    assert finding.evidence == ("in train.py:3",)
    assert "prompt" in finding.remedies[0].title


# ruff: noqa: E501  (one case a line)


SETTINGS = situation().settings
WAITING = {"data_wait_share": 0.4}


def queueing(queue_pct: float | None, own_pct: float = 50.0, cpu_pct: float = 100.0) -> tuple[Sample, ...]:
    """A training without a GPU whose main thread waits for a core, on a machine of 16 cores."""
    main = ProcessSample(PID, "main", own_pct, GB, cpu_queue_pct=queue_pct)
    return tuple(replace(sample, processes=(main,)) for sample in samples(cpu_pct=cpu_pct))


def causes(**changes: Any) -> list[str]:
    """The causes found in a healthy situation bent by `changes`."""
    return [finding.cause for finding in diagnose(situation(**changes))]


@pytest.mark.parametrize(
    ("cause", "changes"),
    [
        ("gpu-underused", {"samples": samples(gpu={"utilisation_pct": 60.0})}),
        ("throttled", {"samples": samples(gpu={"throttle": ("thermal slowdown (hardware)",)})}),
        ("gpu-memory-near-limit", {"samples": samples(gpu={"memory_used_bytes": int(23.5 * GB)})}),
        ("gpu-lost", {"samples": samples(gpu={"lost": True})}),
        ("swapping", {"samples": samples(gpu={}, swap_in_bytes_s=2e7)}),
        ("host-memory-near-limit", {"samples": samples(gpu={}, ram_used_bytes=63 * GB)}),
        ("shm-near-limit", {"samples": samples(gpu={}, workers=(50.0,), shm_free_bytes=1_000_000)}),
        ("disk-nearly-full", {"samples": samples(gpu={}, disk_free_bytes=GB)}),
        ("evaluation-share", {"state": training(steps={"eval_s": 400.0})}),
        ("save-share", {"state": training(steps={"save_s": 100.0})}),
        ("padding", {"state": training(rates={"padding_share": 0.5})}),
        ("compiling", {"state": training(phase="compiling", phase_since_t=NOW - 60)}),
        ("nan", {"state": training(loss=math.nan)}),
        ("nan", {"state": training(loss=0.0, grad_norm=math.nan)}),
        ("data-wait", {"state": training(rates=WAITING)}),
        (
            "loss-scale",
            {"state": training(in_effect={"loss_ignores_accumulation": True, "gradient_accumulation_steps": 2})},
        ),
        ("cpu-contended", {"samples": queueing(60.0)}),
    ],
)
def test_each_rule_speaks(cause: str, changes: dict[str, Any]) -> None:
    (finding,) = diagnose(situation(**changes))
    assert finding.cause == cause
    assert finding.evidence


def test_a_training_on_contended_cores_computes_with_the_threads_that_are_left() -> None:
    # Of 16 cores, all busy, the training has half a core: others keep 15.5, and less than one is left.
    (finding,) = diagnose(situation(samples=queueing(60.0), state=training(in_effect={"device": "cpu"})))
    assert [remedy.title for remedy in finding.remedies] == [
        "compute with fewer threads: OMP_NUM_THREADS=1",
        "end or move the other jobs on this machine",
    ]
    # With 8 cores of its own, 8 are left; a training on a GPU does not compute here.
    (finding,) = diagnose(situation(samples=queueing(60.0, 800.0), state=training(in_effect={"device": "cpu"})))
    assert finding.remedies[0].title.endswith("OMP_NUM_THREADS=8")
    (finding,) = diagnose(situation(samples=queueing(60.0), state=training(in_effect={"device": "cuda:0"})))
    assert [remedy.title for remedy in finding.remedies] == ["end or move the other jobs on this machine"]


@pytest.mark.parametrize(
    "changes",
    [
        {"samples": samples(gpu={"utilisation_pct": 60.0}, seconds=3)},
        {"samples": samples(gpu={"throttle": ("power cap",)})},
        {"samples": samples(gpu={}, swap_used_bytes=4 * GB, swap_in_bytes_s=0.0)},
        {"samples": samples(gpu={}, shm_free_bytes=1_000_000)},
        {"samples": samples(gpu={}, cpu_pct=99.0)},
        {"samples": samples(gpu={}, cpu_pct=5.0)},
        {"samples": ()},
        {"state": training(rates={"data_wait_share": None, "padding_share": None, "step_time_s": None})},
        {"state": training(rates={"data_wait_share": 0.15, "step_time_s": 0.002})},
        {
            "state": training(phase="evaluating", phase_since_t=NOW - 5),
            "samples": samples(gpu={"utilisation_pct": 20.0}),
        },
        {"inventory": None, "settings": None},
        {"samples": queueing(60.0, own_pct=1500.0)},
        {"samples": queueing(60.0, cpu_pct=70.0)},
        {"samples": queueing(10.0)},
        {"samples": queueing(None)},
        {
            "state": training(in_effect={"loss_ignores_accumulation": True, "gradient_accumulation_steps": 1}),
            "chosen": frozenset(),
        },
        {"state": training(in_effect={"loss_ignores_accumulation": False, "gradient_accumulation_steps": 2})},
    ],
)
def test_silence_where_nothing_is_known_to_be_wrong(changes: dict[str, Any]) -> None:
    assert causes(**changes) == []


def test_where_gpu_and_processor_idle_the_batch_is_far_too_small() -> None:
    idle = {"utilisation_pct": 20.0, "memory_used_bytes": 4 * GB}
    (finding,) = diagnose(situation(samples=samples(gpu=idle, cpu_pct=10.0)))
    titles = [remedy.title for remedy in finding.remedies]
    assert finding.cause == "gpu-underused"
    assert any("neither the GPU nor the CPU" in line for line in finding.evidence)
    assert any("192" in title for title in titles)
    assert "log, evaluate and save less often" in titles


def test_a_disk_that_reads_much_is_evidence_of_the_wait_for_data() -> None:
    (finding,) = diagnose(situation(state=training(rates=WAITING), samples=samples(gpu={}, disk_read_bytes_s=3e8)))
    assert "the disk reads 300 MB/s" in finding.evidence


def test_workers_are_not_taken_away_where_others_have_the_cores() -> None:
    first, second = diagnose(situation(samples=queueing(60.0), state=training(rates=WAITING)))
    assert (first.cause, second.cause, second.where) == ("cpu-contended", "data-wait", "others")
    assert not any(remedy.change for remedy in (*first.remedies, *second.remedies))


def test_an_idle_gpu_that_waits_for_data_is_told_once_by_its_cause() -> None:
    idle = samples(gpu={"utilisation_pct": 20.0}, workers=(99.0,) * 8)
    assert causes(state=training(rates=WAITING), samples=idle) == ["data-wait"]


def test_more_workers_than_cores_with_full_cores_are_too_many() -> None:
    crowded = samples(workers=(25.0,) * 8, cpu_pct=99.0)
    assert causes(state=training(rates=WAITING), samples=crowded, inventory=box(cores=2)) == ["too-many-workers"]


def test_many_small_kernels() -> None:
    quick = training(rates={"step_time_s": 0.02})
    assert causes(state=quick, samples=samples(gpu={"power_w": 120.0})) == ["launch-bound"]


def test_a_busy_gpu_in_fp32_can_do_better() -> None:
    assert causes(settings=Settings(dataloader_num_workers=8)) == ["slow-kernels"]


def test_another_process_on_the_gpu_is_told_only_where_ours_is_seen_too() -> None:
    ours, foreign = GpuProcess(PID, GB), GpuProcess(99, 3 * GB, "python")
    assert causes(samples=samples(gpu={"processes": (ours, foreign)})) == ["other-process"]
    assert causes(samples=samples(gpu={"processes": (GpuProcess(7, GB), foreign)})) == []


def test_a_loss_scaler_may_search_for_its_scale() -> None:
    assert SETTINGS is not None
    young = training(grad_norm=math.inf, steps={"own_steps": 30})
    fp16 = SETTINGS.changed(precision="fp16")
    assert causes(state=young, settings=fp16) == []
    assert causes(state=training(grad_norm=math.inf), settings=fp16) == ["nan"]


def failed_run(log: str = "", oom: OutOfMemory | None = None, raised: Raised | None = None, **exited: Any) -> Situation:
    """A run that ended badly."""
    end = Exited(t=NOW, **exited)
    state = training(exited=end, finished=Finished(t=NOW, outcome="failed"), out_of_memory=oom, raised=raised)
    return situation(state=state, samples=(), log=tuple(log.split("\n")))


@pytest.mark.parametrize(
    ("now", "cause", "where"),
    [
        (failed_run(signal=9, oom_kill=True, evidence=("memory.events: oom_kill 1",)), "host-oom", "training"),
        (failed_run("Killed", signal=9), "host-oom", None),
        (failed_run(signal=9, oom_kill=False), "unknown", None),
        (failed_run(signal=7), "shm", None),
        (failed_run(signal=11), "unknown", None),
        (failed_run("step 40", signal=1), "interrupted", None),
        (failed_run("step 40", exit_code=143), "interrupted", None),
        (failed_run("./t.sh: line 9: 77 Hangup  python t.py", exit_code=1), "interrupted", None),
        (failed_run("Received SIGHUP death signal, shutting down workers", exit_code=1), "interrupted", None),
        (failed_run("Received 1 death signal\nTraceback (most recent call last):\n  File \"a\", line 1, in b", exit_code=1), "interrupted", None),
        (failed_run("Sending process 7 closing signal SIGTERM", exit_code=1), "unknown", None),
        (failed_run("SignalException: Process 7 got sigval:1", exit_code=1), "interrupted", None),
        (failed_run("Received signal 10\nKeyError: 'a'", exit_code=1), "program-error", None),
        (failed_run("loss: nan", signal=15), "nan", None),
        (failed_run(signal=4), "gpu-software", None),
        (failed_run(exit_code=3), "unknown", None),
        (failed_run("nothing to see", exit_code=137), "host-oom", None),
        (failed_run(exit_code=1, oom=OutOfMemory(t=NOW, message="CUDA out of memory. Tried", where="evaluating")), "gpu-oom", "evaluation"),
        (failed_run(exit_code=1, oom=OutOfMemory(t=NOW, message="DefaultCPUAllocator: can't allocate memory", where="optimizer-step")), "host-oom", "optimizer-step"),
        (failed_run(exit_code=1, raised=Raised(t=NOW, type="KeyError", message="'a'")), "unknown", None),
        (failed_run(exit_code=1, raised=Raised(t=NOW, type="ModuleNotFoundError", message="No module named 'peft'")), "missing-package", None),
        (failed_run("Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nOSError: [Errno 28] No space left", exit_code=1), "disk-full", None),
    ],
)  # fmt: skip
def test_the_end_of_a_run_is_read_from_all_its_evidence(now: Situation, cause: str, where: str | None) -> None:
    first = diagnose(now)[0]
    assert (first.cause, first.severity) == (cause, "failed")
    assert where is None or first.where == where


@pytest.mark.parametrize(
    ("observed", "title"),
    [
        ({"checkpoint": Checkpoint(t=NOW, path="/o/checkpoint-9", step=9)}, "resume from the newest checkpoint"),
        ({}, "start it again; no checkpoint of it is known here"),
    ],
)
def test_a_run_is_resumed_only_from_a_checkpoint_that_was_saved(observed: dict[str, Any], title: str) -> None:
    end = Exited(t=NOW, signal=1)
    state = training(exited=end, finished=Finished(t=NOW, outcome="failed"), **observed)
    remedies = diagnose(situation(state=state, samples=()))[0].remedies
    assert [remedy.title.startswith(title) for remedy in remedies] == [False, True]


@pytest.mark.parametrize("outcome", ["completed", "stopped"])
def test_a_run_that_ended_well_has_no_crash_whatever_its_log_says(outcome: str) -> None:
    state = training(exited=Exited(t=NOW, exit_code=0), finished=Finished(t=NOW, outcome=outcome))
    log = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB",)
    assert causes(state=state, log=log, samples=()) == []


def test_a_run_that_lives_has_no_crash_whatever_its_log_says() -> None:
    assert causes(log=("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB",)) == []


def test_the_worst_comes_first() -> None:
    lost = samples(gpu={"lost": True}, disk_free_bytes=GB)
    assert causes(samples=lost, state=training(rates={"padding_share": 0.6})) == [
        "gpu-lost",
        "disk-nearly-full",
        "padding",
    ]


@pytest.mark.parametrize(
    ("xid", "error_sentence", "remedy"),
    [
        (48, "GPU 0 reported Xid 48: uncorrectable ECC memory error (double bit)", "reset"),
        (31, "GPU 0 reported Xid 31: page fault: a kernel used an illegal address", "CUDA_LAUNCH_BLOCKING"),
    ],
)
def test_an_error_of_the_driver(xid: int, error_sentence: str, remedy: str) -> None:
    (finding,) = diagnose(situation(samples=samples(gpu={"xid": xid, "xid_age_s": 12.0})))
    assert (finding.cause, finding.sentence) == ("gpu-error", error_sentence)
    assert remedy in finding.remedies[0].title
    assert diagnose(situation(samples=samples(gpu={}))) == ()


@pytest.mark.parametrize(
    ("reserved_gb", "allocated_gb", "retries", "expected"),
    [
        (23, 22.8, 0, "GPU 0 has 668 MiB free: a longer batch may not fit"),  # 0.5 GB and 0.2 cached
        (23, 14, 0, None),  # 9 GB are cached: the next batch can have them
        (23, 14, 3, "GPU 0 has 8.8 GiB free: a longer batch may not fit"),  # it had to free that cache to continue
        (None, None, 0, "GPU 0 has 477 MiB free: a longer batch may not fit"),
    ],
)
def test_memory_that_pytorch_caches_is_not_full(
    reserved_gb: float | None, allocated_gb: float | None, retries: int, expected: str | None
) -> None:
    """`nvidia-smi` counts it as used (PyTorch, CUDA semantics: memory management): here 23.5 of 24 GB."""
    peaks = {
        "reserved_peak_bytes": None if reserved_gb is None else int(reserved_gb * GB),
        "allocated_peak_bytes": None if allocated_gb is None else int(allocated_gb * GB),
        "alloc_retries": retries,
    }
    full = samples(gpu={"memory_used_bytes": int(23.5 * GB)})
    findings = diagnose(situation(samples=full, state=training(steps=peaks)))
    finding = next((outcome for outcome in findings if outcome.cause == "gpu-memory-near-limit"), None)
    assert (None if finding is None else finding.sentence) == expected
    if finding is not None:
        assert ("expandable_segments" in finding.remedies[0].title) is bool(retries)


def step(number: int, rows: tuple[int, ...], loss: float = 1.0, unfinished: bool = False) -> StepBatch:
    """A step of one micro batch."""
    losses = () if unfinished else (loss,)
    return StepBatch(number, 0, 1, losses, (rows,), (len(rows), 8), unfinished)


def test_a_loss_that_is_not_finite_names_its_rows_also_after_the_end() -> None:
    healthy = [step(number, (4, 5)) for number in (1, 2, 3)]
    suspects = find_suspects([*healthy, step(4, (6, 7), math.nan)], failed=False)
    for finished in (None, Finished(t=NOW, outcome="completed")):
        state = training(loss=math.nan, finished=finished, phase="training" if finished is None else "ending")
        finding = diagnose(replace(situation(state=state), suspects=suspects))[0]
        assert finding.cause == "nan"
        assert finding.evidence[-1] == "the loss is nan first in step 4: rows 6, 7"
        assert "learning rate" not in finding.remedies[0].title


def test_a_lower_rate_is_advised_only_where_the_loss_rose_before_it_was_nan() -> None:
    for losses, rose in (([0.7, 0.71, 0.69, 0.7, 0.72], False), ([0.7, 0.7, 0.9, 3.4, 61.0], True)):
        batches = [step(n, (n,), loss) for n, loss in enumerate([*losses, math.nan])]
        state = training(loss=math.nan, not_finite_since=5)
        finding = diagnose(replace(situation(state=state), suspects=find_suspects(batches, failed=False)))[0]
        assert finding.evidence[0] == "loss nan since step 5"
        names = [remedy.name for remedy in finding.remedies]
        assert ("lower-learning-rate" in names, names[0] == "look-at-data") == (rose, not rose)
        shown = situation(state=state, replay=Replay(5, problem="Unknown."))
        failed = replace(shown, suspects=find_suspects(batches, failed=False))
        assert diagnose(failed)[0].remedies == finding.remedies, "a replay that shows nothing changes nothing"


def test_jumps_of_the_loss_that_share_a_row_are_a_finding() -> None:
    rows = [tuple(range(n * 4 % 96, n * 4 % 96 + 4)) for n in range(96)]
    suspects = find_suspects([step(n, row, 40.0 if 9 in row else 1.0) for n, row in enumerate(rows, 1)], failed=False)
    done = training(finished=Finished(t=NOW, outcome="completed"), phase="ending")
    (finding,) = diagnose(replace(situation(state=done), suspects=suspects))
    assert (finding.cause, finding.sentence) == (
        "loss-spikes",
        "The loss jumped in 4 steps, each time with rows 8 to 11 of the data",
    )
    assert (finding.severity, finding.confidence) == ("hint", "possible"), "hard rows are shared by jumps as well"


def test_ranks_that_train_on_the_same_rows_are_a_finding_unless_they_share_a_model() -> None:
    ranks = {rank: RankState(rank, PID + rank, counters()) for rank in (0, 1)}
    done = training(finished=Finished(t=NOW, outcome="completed"), phase="ending", ranks=ranks, world_size=2)
    judged = replace(situation(state=done), suspects=Suspects(repeated_steps=40))
    (finding,) = (each for each in diagnose(judged) if each.cause == "same-data")
    assert finding.sentence == "The 2 ranks trained on the same rows: together they did the work of one"
    assert finding.evidence == ("the rows of all ranks are equal in 40 of 40 steps",)
    divided = replace(judged, job=CommandJob(command=("train",), stated={"model_parallel": 2}))
    few = replace(judged, suspects=Suspects(repeated_steps=5))
    assert [each.cause for other in (divided, few) for each in diagnose(other) if each.cause == "same-data"] == []
    alone = {rank: RankState(rank, PID + rank, counters(alone=True)) for rank in (0, 1)}
    running = situation(state=training(ranks=alone, world_size=2))
    (finding,) = (each for each in diagnose(running) if each.cause == "not-connected")
    assert finding.sentence == "The 2 processes are not connected: each trains a model of its own"
    assert "same-data" not in [each.cause for each in diagnose(replace(judged, state=running.state))]


def test_the_step_that_failed_names_its_rows() -> None:
    failed = training(
        finished=Finished(t=NOW, outcome="failed"), raised=Raised(t=NOW, type="ValueError", message="a broken sample")
    )
    suspects = find_suspects([step(9, (4, 5), unfinished=True)], failed=True)
    finding = diagnose(replace(situation(state=failed), suspects=suspects))[0]
    assert "step 9, which failed, was made of (2 × 8) rows 4, 5" in finding.evidence


def test_a_worker_that_dies_while_a_step_computes_had_other_rows_and_keeps_the_remedy_of_the_message() -> None:
    message = (
        "DataLoader worker (pid 331) exited unexpectedly with exit code 1. Details are lost due to multiprocessing. "
        "Rerunning with num_workers=0 may give better error trace."
    )
    folder = "/lib/python3.11/site-packages/torch"
    frames = (
        ("/home/u/train.py", "<module>"),
        (f"{folder}/autograd/graph.py", "_engine_run_backward"),
        (f"{folder}/utils/data/_utils/signal_handling.py", "handler"),
    )
    log = ["Traceback (most recent call last):"]
    for file, function in frames:
        log += [f'  File "{file}", line 9, in {function}', "    call()"]
    raised = Raised(t=NOW, type="RuntimeError", message=message, where="training")
    failed = training(finished=Finished(t=NOW, outcome="failed"), raised=raised)
    suspects = find_suspects([step(9, (4, 5), unfinished=True)], failed=True)
    judged = replace(situation(state=failed), suspects=suspects, log=(*log, f"RuntimeError: {message}"))
    finding = diagnose(judged)[0]
    assert finding.sentence == "A loader process died"
    assert not [line for line in finding.evidence if "rows" in line or "backward" in line]
    assert finding.remedies[0].name == "without-workers"
