"""Where each live rule begins to speak: its finding at the limit, and silence next to it.

The limits of the GPU are the field notes': 70-95 % busy, 80-95 % of the memory, a processor at 50 %. The others are
the figures that `advice.thresholds` states, written out here.
"""

# ruff: noqa: E501  (one limit a line)

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.fakes.situations import GB, NOW, PID, box, counters, sample, samples, situation, training
from tuner_tui.advice.diagnose import FindingRule
from tuner_tui.advice.findings import gpu, memory, step_time
from tuner_tui.advice.findings.run_metrics import training_share
from tuner_tui.hardware.inventory import GpuProcess
from tuner_tui.hardware.sample import Sample

WAITING = training(rates={"data_wait_share": 0.4})
MINE = GpuProcess(PID, 10 * GB, "python")


def make_gpu(**figures: Any) -> dict[str, Any]:
    """The healthy training, its GPU with other figures."""
    return {"samples": samples(gpu=figures, workers=(50.0,) * 8)}


def throttled(count: int) -> tuple[Sample, ...]:
    """Ten seconds, in `count` of whose eleven samples the GPU is hot."""
    hot = samples(10, gpu={"throttle": ("thermal slowdown (software)",)})
    return (*hot[:count], *samples(10, gpu={})[count:])


def disk_waits(share: float, read_bytes_s: float | None = None) -> tuple[Sample, ...]:
    """A loader of one idle worker, which is in state D in that share of 100 samples."""
    waiting = round(share * 100)
    return tuple(
        replace(taken, processes=(taken.processes[0], replace(taken.processes[1], state="D" if n < waiting else "S")))
        for n, taken in enumerate(
            sample(NOW - (99 - n) / 4, workers=(5.0,), disk_read_bytes_s=read_bytes_s) for n in range(100)
        )
    )


def share(kind: str, spent_s: float) -> dict[str, Any]:
    """The training after 65 or 85 seconds of steps, so that 35 or 15 seconds are that share of all."""
    train_s = 65.0 if kind == "eval_s" else 85.0
    return {"state": training(steps={kind: spent_s, "train_s": train_s})}


LIMITS: tuple[tuple[FindingRule, dict[str, Any], dict[str, Any]], ...] = (
    (gpu.gpu_memory_near_limit, make_gpu(memory_used_bytes=95 * GB, memory_total_bytes=100 * GB), make_gpu(memory_used_bytes=95 * GB - 1, memory_total_bytes=100 * GB)),
    (gpu.gpu_memory_unused, {**make_gpu(memory_used_bytes=80 * GB - 1, memory_total_bytes=100 * GB), "settings": None}, {**make_gpu(memory_used_bytes=80 * GB, memory_total_bytes=100 * GB), "settings": None}),
    (gpu.gpu_memory_unused, make_gpu(memory_used_bytes=4 * GB, utilisation_pct=90.0), make_gpu(memory_used_bytes=4 * GB, utilisation_pct=89.9)),
    (gpu.gpu_underused, make_gpu(utilisation_pct=89.9), make_gpu(utilisation_pct=90.0)),
    (gpu.launch_bound, {**make_gpu(utilisation_pct=70.0, power_w=54.0, power_limit_w=100.0), "state": training(rates={"step_time_s": 0.09})}, {**make_gpu(utilisation_pct=69.9, power_w=54.0, power_limit_w=100.0), "state": training(rates={"step_time_s": 0.09})}),
    (gpu.launch_bound, {**make_gpu(power_w=54.9, power_limit_w=100.0), "state": training(rates={"step_time_s": 0.09})}, {**make_gpu(power_w=55.0, power_limit_w=100.0), "state": training(rates={"step_time_s": 0.09})}),
    (gpu.launch_bound, {**make_gpu(power_w=40.0, power_limit_w=100.0), "state": training(rates={"step_time_s": 0.0999})}, {**make_gpu(power_w=40.0, power_limit_w=100.0), "state": training(rates={"step_time_s": 0.1})}),
    (gpu.launch_bound, {**make_gpu(power_w=40.0, power_limit_w=100.0), "state": training(rates={"step_time_s": 0.05, "data_wait_share": 0.0999})}, {**make_gpu(power_w=40.0, power_limit_w=100.0), "state": training(rates={"step_time_s": 0.05, "data_wait_share": 0.10})}),
    (gpu.other_process, make_gpu(processes=(MINE, GpuProcess(7, 500_000_000, "notebook"))), make_gpu(processes=(MINE, GpuProcess(7, 499_999_999, "notebook")))),
    (gpu.other_process, make_gpu(processes=(MINE, GpuProcess(7, 2 * GB, "notebook"))), make_gpu(processes=(GpuProcess(7, 2 * GB, "notebook"),))),
    (gpu.throttled, {"samples": throttled(6)}, {"samples": throttled(5)}),
    (gpu.throttled, {"samples": samples(6, gpu={"throttle": ("power brake",)})}, {"samples": samples(5, gpu={"throttle": ("power brake",)})}),
    (gpu.compiling, {"state": training(phase="compiling", phase_since_t=NOW - 20)}, {"state": training(phase="compiling", phase_since_t=NOW - 19.9)}),
    (memory.host_memory_near_limit, {"samples": samples(ram_used_bytes=95 * GB, ram_total_bytes=100 * GB)}, {"samples": samples(ram_used_bytes=95 * GB - 1, ram_total_bytes=100 * GB)}),
    (memory.swapping, {"samples": samples(swap_in_bytes_s=5e6)}, {"samples": samples(swap_in_bytes_s=4.9e6)}),
    (memory.small_shm, {"samples": samples(workers=(50.0,), shm_free_bytes=31_999_999)}, {"samples": samples(workers=(50.0,), shm_free_bytes=32_000_000)}),
    (memory.disk_nearly_full, {"samples": samples(disk_free_bytes=2 * GB - 1)}, {"samples": samples(disk_free_bytes=2 * GB)}),
    (step_time.data_wait, {"state": training(rates={"data_wait_share": 0.10})}, {"state": training(rates={"data_wait_share": 0.0999})}),
    (step_time.data_wait, {"state": training(rates={"data_wait_share": 0.2, "step_time_s": 0.005})}, {"state": training(rates={"data_wait_share": 0.2, "step_time_s": 0.0049})}),
    (step_time.evaluation_share, share("eval_s", 35.0), share("eval_s", 34.9)),
    (step_time.save_share, share("save_s", 15.0), share("save_s", 14.9)),
    (step_time.padding, {"state": training(rates={"padding_share": 0.35})}, {"state": training(rates={"padding_share": 0.349})}),
    (step_time.between_steps, {"state": training(rates={"between_share": 0.35}, in_effect={"device": "cpu"})}, {"state": training(rates={"between_share": 0.349}, in_effect={"device": "cpu"})}),
    (step_time.between_steps, {**make_gpu(utilisation_pct=69.9), "state": training(rates={"between_share": 0.5})}, {**make_gpu(utilisation_pct=70.0), "state": training(rates={"between_share": 0.5})}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "at", "beyond"), LIMITS, ids=lambda rule_or_value: getattr(rule_or_value, "__name__", "")
)
def test_a_rule_speaks_at_its_limit_and_not_before(
    rule: FindingRule, at: dict[str, Any], beyond: dict[str, Any]
) -> None:
    assert rule(situation(**at)) is not None
    assert rule(situation(**beyond)) is None


@pytest.mark.parametrize(
    ("changes", "severity", "where"),
    [
        ({"state": training(rates={"data_wait_share": 0.25})}, "warning", "workers"),
        ({"state": training(rates={"data_wait_share": 0.2499})}, "hint", "workers"),
        ({"state": WAITING, "samples": samples(workers=(95.0, 24.9, 24.9))}, "warning", "one-worker"),
        ({"state": WAITING, "samples": samples(workers=(94.9, 24.9, 24.9))}, "warning", "workers"),
        ({"state": WAITING, "samples": samples(workers=(95.0, 25.0, 24.9))}, "warning", "workers"),
        ({"state": WAITING, "samples": samples(workers=(95.0,))}, "warning", "workers"),
        ({"state": WAITING, "samples": samples(workers=(24.9, 10.0))}, "warning", "workers"),
        ({"state": WAITING, "samples": disk_waits(0.3)}, "warning", "storage"),
        ({"state": WAITING, "samples": disk_waits(0.29)}, "warning", "workers"),
        ({"state": WAITING, "samples": disk_waits(0.0, read_bytes_s=80e6)}, "warning", "storage"),
        ({"state": WAITING, "samples": disk_waits(0.0, read_bytes_s=79e6)}, "warning", "workers"),
        ({"state": WAITING, "samples": samples(workers=(25.0, 10.0))}, "warning", "workers"),
        ({"state": WAITING, "samples": samples(workers=(80.0,) * 3, cpu_pct=90.0), "inventory": box(cores=4)}, "warning", "cpu"),
        ({"state": WAITING, "samples": samples(workers=(80.0,) * 3, cpu_pct=89.9), "inventory": box(cores=4)}, "warning", "workers"),
        ({"state": WAITING, "samples": samples(5, workers=(95.0, 1.0))}, "warning", "workers"),
        ({"state": WAITING, "samples": samples(5, workers=(20.0,), cpu_pct=99.0)}, "warning", "cpu"),
    ],
)  # fmt: skip
def test_what_limits_the_loader(changes: dict[str, Any], severity: str, where: str) -> None:
    finding = step_time.data_wait(situation(**changes))
    assert finding is not None
    assert (finding.severity, finding.where) == (severity, where)
    assert finding.confidence == ("likely" if where == "storage" or severity == "hint" else "certain")


@pytest.mark.parametrize(
    ("epoch_wait_s", "persistent", "where"),
    [(4.1, False, "epoch-start"), (4.0, False, "workers"), (8.0, True, "workers")],
)
def test_workers_that_start_in_each_epoch(epoch_wait_s: float, persistent: bool, where: str) -> None:
    rank = WAITING.ranks[0]
    assert rank.latest is not None
    waited_s = rank.recent[0].data_wait_s + 8.0
    latest = replace(rank.latest, data_wait_s=waited_s, epoch_wait_s=epoch_wait_s)
    waits = replace(WAITING, ranks={0: replace(rank, latest=latest, recent=(rank.recent[0], latest))})
    settings = situation().settings
    assert settings is not None
    finding = step_time.data_wait(
        situation(state=waits, settings=settings.changed(dataloader_persistent_workers=persistent))
    )
    assert finding is not None
    assert finding.where == where


@pytest.mark.parametrize(
    ("loads", "cores", "too_many"),
    [
        ((80.0,) * 8, 8, True),  # 640 % of 800 %: more than 0.4 of all cores
        ((39.9,) * 8, 8, False),
        ((40.0,) * 8, 8, True),
        ((90.0,) * 7, 8, False),  # as many as cores that the training leaves
        ((50.0,), 1, False),
        ((40.0, 20.0), 1, True),
    ],
)
def test_workers_are_too_many_where_they_fill_the_cores(loads: tuple[float, ...], cores: int, too_many: bool) -> None:
    assert step_time.has_too_many_workers(situation(samples=samples(workers=loads), inventory=box(cores=cores))) == (
        too_many
    )


def test_a_near_limit_is_a_warning_once_the_allocator_has_emptied_its_cache() -> None:
    full = make_gpu(memory_used_bytes=int(23.5 * GB))
    hint, warning = (
        gpu.gpu_memory_near_limit(situation(**full, state=training(steps={"alloc_retries": count}))) for count in (0, 3)
    )
    assert hint is not None
    assert warning is not None
    assert (hint.severity, hint.confidence, len(hint.evidence)) == ("hint", "possible", 1)
    assert (warning.severity, warning.confidence) == ("warning", "likely")
    assert warning.evidence == ("21.9 GiB of 22.4 GiB used", "the allocator emptied its cache 3 times to continue")


@pytest.mark.parametrize(
    ("busy", "cpu", "severity", "both"),
    [(49.9, 49.9, "warning", True), (50.0, 49.9, "hint", False), (49.9, 50.0, "warning", False)],
)
def test_both_low_is_below_half_of_each(busy: float, cpu: float, severity: str, both: bool) -> None:
    finding = gpu.gpu_underused(situation(samples=samples(gpu={"utilisation_pct": busy}, cpu_pct=cpu)))
    assert finding is not None
    assert finding.severity == severity
    assert any("neither the GPU nor the CPU" in line for line in finding.evidence) == both


@pytest.mark.parametrize(
    ("steps", "training_s", "judged"),
    [(10, 2, True), (9, 2, False), (9, 59.9, False), (3, 60, True), (2, 600, False)],
)
def test_advice_begins_after_ten_steps_or_three_slow_ones(steps: int, training_s: float, judged: bool) -> None:
    state = training(
        rates={"data_wait_share": 0.4}, steps={"own_steps": steps}, training_since_t=NOW - training_s
    )  # fmt: skip
    assert (step_time.data_wait(situation(state=state)) is not None) == judged


@pytest.mark.parametrize(("seconds", "judged"), [(120, True), (119.9, False)])
def test_a_compiled_model_is_judged_after_two_minutes(seconds: float, judged: bool) -> None:
    state = training(
        rates={"data_wait_share": 0.4}, in_effect={"torch_compile": True}, training_since_t=NOW - seconds
    )  # fmt: skip
    assert (step_time.data_wait(situation(state=state)) is not None) == judged


def test_the_slowest_rank_decides_what_is_spent_on_evaluation() -> None:
    state = training(steps={"eval_s": 10.0, "train_s": 65.0})
    slow = replace(state.ranks[0], rank=1, recent=(counters(rank=1, eval_s=35.0, train_s=65.0),))
    finding = step_time.evaluation_share(situation(state=replace(state, ranks={**state.ranks, 1: slow})))
    assert finding is not None
    assert finding.lost_share == pytest.approx(0.35)


@pytest.mark.parametrize("rule", [step_time.evaluation_share, step_time.save_share])
def test_what_follows_the_last_step_is_done_once(rule: FindingRule) -> None:
    name = "eval_s" if rule is step_time.evaluation_share else "save_s"
    state = training(steps={name: 5.0})
    since = replace(state.ranks[0], latest=counters(**{name: 400.0}))
    assert rule(situation(state=replace(state, ranks={0: since}))) is None
    assert rule(situation(state=training(steps={name: 400.0}))) is not None


@pytest.mark.parametrize(("age_s", "lines"), [(None, 1), (12.0, 2)])
def test_an_error_of_the_driver_has_its_age_where_it_is_known(age_s: float | None, lines: int) -> None:
    finding = gpu.driver_error(situation(samples=samples(gpu={"xid": 79, "xid_age_s": age_s})))
    assert finding is not None
    assert len(finding.evidence) == lines


def test_an_idle_gpu_comes_with_its_memory_and_the_wait_for_data() -> None:
    finding = gpu.gpu_underused(situation(**make_gpu(utilisation_pct=60.0, memory_used_bytes=18 * GB)))
    assert finding is not None
    assert "memory 75 % of the GPU" in finding.evidence
    assert any(line.startswith("data wait 2 % of step time") for line in finding.evidence)


def test_the_share_of_steps_is_that_of_the_slowest_rank_and_all_where_nothing_is_counted() -> None:
    assert training_share(situation(state=training(ranks={}))) == 1.0
    assert training_share(situation(state=training(steps={"train_s": 60.0, "eval_s": 15.0, "save_s": 5.0}))) == 0.75


def test_swapping_is_shown_in_megabytes() -> None:
    finding = memory.swapping(situation(samples=samples(swap_in_bytes_s=25e6)))
    assert finding is not None
    assert finding.evidence[0].startswith("25 MB/s read from swap over ")


@pytest.mark.parametrize(("measured_share", "shown"), [(None, True), (0.0, False)])
def test_pytorchs_warning_of_too_many_workers_counts_until_the_wait_is_measured(
    measured_share: float | None, shown: bool
) -> None:
    warned = "UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max number of worker"
    log = (f"{warned} in current system is 8, which is smaller than what this DataLoader is going to create.",)
    state = training(rates={"data_wait_share": measured_share})
    finding = step_time.worker_warning(situation(state=state, log=log))
    assert (finding is not None) is shown
    if finding is not None:
        assert finding.sentence == "16 loader workers share 8 cores, which PyTorch warns about"
        assert finding.remedies[0].title.startswith("workers 16 → ")
