"""A remedy says the peak it leads to, and is not offered where that does not fit."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.fakes.situations import GB, NOW, box, counters, make_gpu, samples, situation, training
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.estimate import JobMemoryEstimator, limit_device_memory, limited_target
from tuner_tui.advice.expected_memory import CHECKPOINTING_SHARE, ExpectedPeak, expected_peak, training_device_of
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import GIB
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import HostMemory
from tuner_tui.memory.calibration import MeasuredRun
from tuner_tui.memory.device import Device
from tuner_tui.runs.events.run_state import RankState, RunState
from tuner_tui.runs.events.types import Exited, Finished, OutOfMemory
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings


def batch(micro: int, accumulation: int = 1) -> dict[str, Any]:
    return {"per_device_train_batch_size": micro, "gradient_accumulation_steps": accumulation}


def running(
    used_gb: float, settings: dict[str, Any], total_gb: float = 24, busy_pct: float = 96.0, **extra: Any
) -> Situation:
    """A training that holds `used_gb` of its GPU."""
    gpu = {
        "memory_used_bytes": int(used_gb * GB), "memory_total_bytes": int(total_gb * GB), "utilisation_pct": busy_pct,
    }  # fmt: skip
    inventory = box(make_gpu(memory_total_bytes=int(total_gb * GB)))
    now = situation(samples=samples(gpu=gpu, workers=(50.0,) * 8), inventory=inventory, **extra)
    assert now.settings is not None
    return replace(now, settings=now.settings.changed(**settings))


def observed(peak_gb: float, held_gb: float) -> RunState:
    """A training whose allocator held `peak_gb` at most, all of it in use then, and `held_gb` between steps."""
    figures = {"allocated_peak_bytes": int(peak_gb * GB), "reserved_peak_bytes": int(peak_gb * GB)}
    return training(steps={**figures, "allocated_bytes": int(held_gb * GB)})


def peak_of(now: Situation, change: dict[str, Any]) -> ExpectedPeak:
    peak = expected_peak(now, change)
    assert peak is not None
    return peak


def test_what_is_held_between_steps_stays_and_the_rest_grows_with_the_batch() -> None:
    """1 GB outside the allocator + 4 held + 6 × 2 = 17 GB, by hand."""
    now = running(11, batch(16), state=observed(peak_gb=10, held_gb=4))
    assert peak_of(now, batch(32)).peak_bytes == pytest.approx(17 * GB)
    assert peak_of(now, batch(8)).peak_bytes == pytest.approx(8 * GB)
    assert peak_of(now, batch(32)).verdict == "fits"


def test_where_the_held_memory_is_not_known_the_bounds_are_all_and_nothing() -> None:
    peak = peak_of(running(10, batch(16)), batch(24))
    context = 500 * 2**20
    assert peak.low_bytes == 10 * GB
    assert peak.high_bytes == pytest.approx(context + (10 * GB - context) * 1.5)


def test_the_states_of_another_optimizer_follow_from_the_parameters_that_the_process_trains() -> None:
    """0.5 billion parameters: 8 bytes each become 2 × (1 + 4 / 256), so 2.98 of 11 GB go; hand calculation."""
    state = replace(observed(peak_gb=10, held_gb=7), trainable_parameters=500_000_000)
    now = running(11, {**batch(16), "optim": "adamw_torch"}, state=state)
    change = {"optim": "adamw_bnb_8bit"}
    assert peak_of(now, change).peak_bytes == pytest.approx((11 - 0.5 * (8 - 2.03125)) * GB, rel=1e-3)
    assert peak_of(now, {**change, **batch(32)}).peak_bytes == pytest.approx((14 - 0.5 * (8 - 2.03125)) * GB, rel=1e-3)
    unknown = replace(now, state=observed(peak_gb=10, held_gb=7))
    assert expected_peak(unknown, change) is None


def test_the_estimate_is_corrected_by_what_the_run_measured() -> None:
    """Twice the memory that the estimate says, so twice the growth that it says."""
    job = BuiltinJob(model="bert-base")
    small, large = batch(8), batch(16)
    plain = Situation(RunState(), NOW, Settings(**small), box(make_gpu()), job=job)
    first, second = (
        peak_of(plain, settings_of_one).peak_bytes for settings_of_one in (batch(8) | {"precision": "bf16"}, large)
    )
    assert second > first
    state = observed(peak_gb=12, held_gb=4)
    measured = peak_of(running(12.5, small | {"precision": "fp32"}, state=state, job=job), large)
    assert "corrected by this run" in measured.rests_on
    assert 12.5 * GB < measured.peak_bytes < 24.5 * GB


def test_a_batch_that_does_not_fit_is_not_offered() -> None:
    """The example of the notes: 48 → 192 at 94 % of the GPU."""
    full = running(22.5, batch(48, 4), busy_pct=20)
    for where in (None, "very-low", "both-low"):
        for remedy in remedies_for("gpu-underused", full, where):
            assert "per_device_train_batch_size" not in remedy.change
    for remedy in remedies_for("gpu-underused", running(3, batch(48, 4), busy_pct=20), "both-low"):
        if "per_device_train_batch_size" in remedy.change:
            assert remedy.peak is not None
            assert remedy.peak.high_bytes <= 24 * GB
            assert "of 22.4 GiB" in remedy.expectation


def test_without_accumulation_the_effective_batch_grows_with_both_rates_shown() -> None:
    """48 × 1 at 60 % of the time and 29 % of the memory of the GPU; √2 and 2 times 5e-5."""
    (finding,) = diagnose(running(7, batch(48), busy_pct=60))
    first = finding.remedies[0]
    assert first.change == {**batch(96), "learning_rate": pytest.approx(7.07e-5)}
    assert "square-root scaling gives 7.07e-05, linear scaling 0.0001" in first.why
    assert "effective batch 48 → 96" in first.title


def test_with_accumulation_the_effective_batch_is_held() -> None:
    """The headline of the field notes: GPU 85 % with 32 × 3, 7.0 → 7.8 of 8 GB with 48 × 2."""
    now = running(7.0, batch(32, 3), total_gb=8, busy_pct=85)
    (finding,) = diagnose(now)
    assert (finding.cause, finding.severity) == ("gpu-underused", "hint")
    assert finding.remedies[0].change == batch(48, 2)
    assert finding.remedies[0].peak is not None
    assert finding.remedies[0].peak.peak_bytes / GB == pytest.approx(7.8, abs=0.1)
    assert "may not fit" in finding.remedies[0].expectation


@pytest.mark.parametrize(("used_gb", "cause"), [(7, ["gpu-memory-unused"]), (20, []), (18.9, ["gpu-memory-unused"])])
def test_unused_memory_is_a_hint_of_its_own(used_gb: float, cause: list[str]) -> None:
    assert [finding.cause for finding in diagnose(running(used_gb, batch(12)))] == cause


@pytest.mark.parametrize(
    ("job", "held_gb", "alive", "capacity_gb"),
    [
        (BuiltinJob(model="bert-base"), 0, False, 24),  # of unequal GPUs it takes the best
        (BuiltinJob(model="bert-base", launcher="torchrun", processes=2), 0, False, 8),
        (CommandJob(command=("x",), model="bert-base-uncased"), 0, False, 8),
        (None, 0, False, 8),
        (BuiltinJob(model="bert-base"), 10, False, 14),  # what another program holds is not there for it
        (BuiltinJob(model="bert-base"), 10, True, 24),  # what the training holds itself is
    ],
)
def test_the_memory_is_that_of_the_gpus_that_a_new_training_would_use(
    job: BuiltinJob | CommandJob | None, held_gb: int, alive: bool, capacity_gb: int
) -> None:
    inventory = box(
        make_gpu(memory_used_bytes=held_gb * GB), make_gpu(index=1, name="RTX 2080", memory_total_bytes=8 * GB)
    )
    state = RunState(launched_t=NOW if alive else None)
    now = Situation(state, NOW, Settings(), inventory, job=job)
    target = limited_target(inventory, None, job or CommandJob(command=("x",)))
    assert (target.memory_bytes == capacity_gb * GB) == (not alive), "the answer that the recommendation rests on"
    device = training_device_of(now)
    assert device is not None
    assert device.capacity_bytes == capacity_gb * GB


def test_after_out_of_memory_the_next_batch_is_one_that_fits_by_the_estimate() -> None:
    job, small = BuiltinJob(model="bert-base"), box(make_gpu(memory_total_bytes=6 * GIB))
    state = RunState(out_of_memory=OutOfMemory(t=NOW, rank=0, message="CUDA out of memory"))
    settings = Settings(per_device_train_batch_size=512, precision="bf16", max_length=128)
    first = remedies_for("gpu-oom", Situation(state, NOW, settings, small, job=job), "training")[0]
    micro = first.change["per_device_train_batch_size"]
    assert isinstance(micro, int)
    assert micro < 256, "half of it does not fit either"
    assert micro * int(str(first.change["gradient_accumulation_steps"])) == 512
    assert first.peak is not None
    assert first.peak.verdict != "too large"


def test_in_training_nothing_is_offered_that_leaves_training_unchanged() -> None:
    for remedy in remedies_for("gpu-oom", situation(), "training"):
        assert "per_device_eval_batch_size" not in remedy.change


def test_counters_without_an_allocator_are_no_measurement() -> None:
    assert expected_peak(situation(samples=(), state=training()), batch(96)) is None
    ranks = {0: RankState(0, 1, counters(), (counters(),))}
    assert expected_peak(situation(samples=(), state=replace(training(), ranks=ranks)), {"optim": "sgd"}) is None


def out_of_host_memory(**extra: Any) -> Situation:
    """A Trainer on the CPU whose allocator was refused memory."""
    message = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 201326592 bytes."
    state = RunState(
        out_of_memory=OutOfMemory(t=NOW, rank=0, message=message, where="training"),
        in_effect={"n_gpu": 0},
        exited=Exited(t=NOW, exit_code=1),
        finished=Finished(t=NOW, outcome="out-of-memory", sentence="Out of memory while training."),
    )
    return situation(state=state, samples=(), **extra)


def test_a_batch_far_too_large_for_the_host_is_cut_to_what_fits_in_one_step() -> None:
    """The memory bar shows the same estimate: what it calls the largest micro batch is the upper end of the step."""
    settings = Settings(per_device_train_batch_size=4096, max_length=128)
    job, limit = BuiltinJob(model="bert-base"), 24 * GIB
    now = out_of_host_memory(settings=settings, job=job, memory_limit_bytes=limit)
    [finding] = [finding for finding in diagnose(now) if finding.cause == "host-oom"]
    remedy = finding.remedies[0]
    device = limit_device_memory(Device(False, None, 64 * GB), limit, None)
    estimate = JobMemoryEstimator(job, device).closed_form(settings)
    assert estimate is not None
    largest = estimate.largest_batch()
    micro, accumulation = (remedy.change[name] for name in batch(1))
    assert largest is not None
    assert isinstance(micro, int)
    assert isinstance(accumulation, int)
    assert largest // 4 < micro <= largest
    assert micro * accumulation == 4096
    assert remedy.title == f"micro batch 4096 → {micro}, accumulation 1 → {accumulation}"
    assert remedy.peak is not None
    assert remedy.peak.verdict == "fits"
    assert finding.sentence == "The run's own limit of 24 GiB (the host's memory) is exhausted"


def test_earlier_runs_of_a_command_say_which_batch_fits() -> None:
    """6, 8 and 10 GB at 64, 96 and 128 samples are 2 GB and 1/16 GB a sample: 256 take 18 GB, 512 take 34."""
    runs = tuple(
        MeasuredRun(f"r{size}", Settings(per_device_train_batch_size=size), resident_bytes=int(taken * GB))
        for size, taken in ((128, 10), (96, 8), (64, 6))
    )
    now = out_of_host_memory(
        settings=Settings(per_device_train_batch_size=4096),
        job=CommandJob(command=("python", "train.py"), apply="inject"),
        chosen=frozenset(batch(1)),
        inventory=replace(box(), memory=HostMemory(24 * GB)),
        measured=runs,
    )
    [finding] = [finding for finding in diagnose(now) if finding.cause == "host-oom"]
    remedy = finding.remedies[0]
    assert remedy.change == batch(256, 16)
    assert remedy.peak is not None
    assert remedy.peak.peak_bytes == pytest.approx(18 * GB, rel=0.01)


def test_accumulation_keeps_gradients_that_the_earlier_runs_did_not() -> None:
    """10 GB of the allocator and 500 MiB of context; 0.1 billion gradients of 4 bytes stay between micro batches."""
    run = MeasuredRun("r1", Settings(**batch(8)), tensor_bytes=9 * GB, reserved_bytes=10 * GB)
    context, plain = 500 * 2**20, training()
    now = situation(
        settings=Settings(**batch(16)), job=CommandJob(command=("python", "train.py"), apply="inject"),
        measured=(run,), state=plain, samples=(),
    )  # fmt: skip
    trained = replace(now, state=replace(plain, trainable_parameters=100_000_000))
    assert peak_of(trained, batch(8)).peak_bytes == 10 * GB + context
    assert peak_of(trained, batch(8, 2)).peak_bytes == 10.4 * GB + context
    assert peak_of(now, batch(8, 2)).peak_bytes == 10 * GB + context


def test_only_what_the_gpu_held_in_the_training_is_a_measurement() -> None:
    """Of the samples before the training, of a lost GPU and of one without figures nothing is used."""
    now = running(10, batch(16))
    earlier = tuple(replace(sample, time_s=NOW - 301 - n) for n, sample in enumerate(running(20, batch(16)).samples))
    assert peak_of(replace(now, samples=(*earlier, *now.samples)), batch(24)).low_bytes == 10 * GB
    assert expected_peak(replace(now, samples=earlier), batch(24)) is None
    for gpu in ({"memory_used_bytes": None}, {"memory_total_bytes": None}, {"lost": True}):
        assert expected_peak(replace(now, samples=samples(gpu=gpu)), batch(24)) is None


@pytest.mark.parametrize(
    ("settings", "change", "factor"),
    [
        ({"max_length": 128}, {"max_length": 512}, 4.0),
        ({"gradient_checkpointing": False}, {"gradient_checkpointing": True}, CHECKPOINTING_SHARE),
    ],
)
def test_what_grows_with_the_batch_also_grows_with_length_and_without_checkpoints(
    settings: dict[str, Any], change: dict[str, Any], factor: float
) -> None:
    """1 GB outside the allocator and 7 held between steps stay, 3 are scaled."""
    now = running(11, {**batch(16), **settings}, state=observed(peak_gb=10, held_gb=7))
    assert peak_of(now, change).peak_bytes == pytest.approx((8 + 3 * factor) * GB)


def test_what_a_model_of_unknown_shape_takes_without_checkpoints_is_not_known() -> None:
    """34 bytes a token and hidden unit in a block instead of 2: ten times as much (Korthikanti et al. 2022)."""
    now = running(11, {**batch(16), "gradient_checkpointing": True}, state=observed(peak_gb=10, held_gb=7))
    assert expected_peak(now, {"gradient_checkpointing": False}) is None


@pytest.mark.parametrize(
    ("peak", "high", "verdict"), [(90, 95, "fits"), (90, 96, "tight"), (100, 110, "tight"), (101, 110, "too large")]
)
def test_the_verdict_on_a_peak(peak: int, high: int, verdict: str) -> None:
    """With 5 % of the GPU left free."""
    assert ExpectedPeak(peak, 80, high, 100, "measured").verdict == verdict


def test_a_cpu_torch_beside_gpus_is_judged_by_the_memory_of_the_host() -> None:
    """The GPUs are there, but this training does not use them."""
    cpu_torch = Interpreter("/opt/python", packages={"torch": "2.13.0+cpu"})
    assert situation(interpreter=cpu_torch).has_gpu is False
    assert situation(state=training(in_effect={"device": "cpu"})).has_gpu is False
    assert situation(state=training(in_effect={"device": "cuda:0"}), inventory=None).has_gpu is True
    assert situation().has_gpu is True
    assert situation(inventory=None).has_gpu is None


def test_on_a_cpu_only_runs_of_as_many_processes_correct_the_estimate() -> None:
    job, device, settings = BuiltinJob(model="bert-base"), Device(False, None, 64 * GB), Settings()
    runs = [MeasuredRun("r2", settings, resident_bytes=40 * GB, processes=2)]
    alone, together = (JobMemoryEstimator(job, device, count, runs=runs).closed_form(settings) for count in (1, 2))
    assert alone is not None
    assert together is not None
    assert "r2" not in alone.rests_on
    assert "corrected by run r2" in together.rests_on
