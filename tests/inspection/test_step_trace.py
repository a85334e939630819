"""Traces of known steps, reduced and judged."""

from __future__ import annotations

import json

import pytest

from tuner_tui.inspection.slow_step import HotLine, SlowStep, judge_step
from tuner_tui.inspection.step_trace import (
    MARK,
    MODULE_PREFIX,
    PAUSED_MARK,
    PlainSteps,
    StepTimes,
    TraceEvent,
    read_trace,
    reduce_trace,
)

MAIN, GPU = 1, 7
EVALUATE = "autograd::engine::evaluate_function: AddmmBackward0"


class Trace:
    """Builds events one after another, in milliseconds."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []
        self.now_ms = 0.0

    def add(
        self, name: str, ms: float, cat: str = "cpu_op", tid: int = MAIN, at_ms: float | None = None, **args: int
    ) -> None:
        """Add an event that begins now, or at `at_ms`; the time only goes on with `wait`."""
        start = self.now_ms if at_ms is None else at_ms
        event = {"name": name, "ph": "X", "cat": cat, "ts": start * 1000, "dur": ms * 1000, "tid": tid}
        event["args"] = {"Sequence number" if key == "sequence" else key: value for key, value in args.items()}
        self.events += read_trace(json.dumps({"traceEvents": [event]}).encode())

    def run(self, name: str, ms: float, cat: str = "cpu_op", **args: int) -> None:
        """Add an event and go on after it."""
        self.add(name, ms, cat, **args)
        self.wait(ms)

    def wait(self, ms: float) -> None:
        self.now_ms += ms

    def mark(self, name: str = MARK) -> None:
        self.run(name, 0.001, "user_annotation")


def cpu_step(trace: Trace, *, data_ms: float = 1, loss_ms: float = 0, forward_ms: float = 4) -> None:
    trace.run("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", data_ms, "user_annotation")
    trace.add(f"{MODULE_PREFIX}Net", forward_ms)
    trace.add(f"{MODULE_PREFIX}head", forward_ms)
    trace.run("aten::linear", forward_ms, sequence=5)
    trace.wait(loss_ms)
    trace.run(EVALUATE, 3, sequence=5)
    trace.run("Optimizer.step#AdamW.step", 0.01, "user_annotation")
    trace.run("aten::_foreach_add_", 2)


def judged(trace: Trace, plain: PlainSteps, *lines: HotLine) -> tuple[StepTimes, SlowStep]:
    times = reduce_trace(trace.events, plain)
    return times, judge_step(times, lines)


def cpu_trace(**how: float) -> Trace:
    trace = Trace()
    for _ in range(3):
        cpu_step(trace, **how)
        trace.mark()
    return trace


def share_of(times: StepTimes, part: str) -> float:
    return next(times.share(each.seconds) for each in times.parts if each.name == part)


def test_parts_and_modules_of_a_step_on_the_cpu() -> None:
    times, verdict = judged(cpu_trace(), PlainSteps(0.010, 0.001, "cpu"))
    assert times.steps == 2
    assert share_of(times, "data") == pytest.approx(0.1, abs=0.01)
    assert share_of(times, "forward") == pytest.approx(0.4, abs=0.01)
    assert share_of(times, "backward") == pytest.approx(0.3, abs=0.01)
    assert times.modules[0].name == "head"  # forward and backward
    assert times.modules[0].seconds == pytest.approx(0.007, rel=0.02)
    assert (verdict.bound, verdict.where) == ("device", "module head")


def test_the_loader_takes_what_it_took_without_the_profiler() -> None:
    times, verdict = judged(
        cpu_trace(data_ms=20), PlainSteps(0.020, 0.016, "cpu"), HotLine("decode (a.py:3)", 0.9, "data")
    )
    assert verdict.bound == "input"
    assert verdict.share == pytest.approx(0.8, abs=0.01)
    assert verdict.where == "decode (a.py:3)"
    assert times.share(sum(part.seconds for part in times.parts)) == pytest.approx(1.0, abs=0.01)


def test_code_between_the_model_and_backward() -> None:
    _, verdict = judged(
        cpu_trace(loss_ms=30), PlainSteps(0.035, 0.001, "cpu"), HotLine("rank (a.py:9)", 0.8, "training")
    )
    assert (verdict.bound, verdict.where) == ("host", "rank (a.py:9)")
    assert verdict.gains[0].remedy.endswith("between the model and backward()")
    assert verdict.gains[0].share == pytest.approx(30 / 35, abs=0.02)


def test_a_rank_that_waits_for_others_at_the_end_of_its_backward_pass() -> None:
    trace = Trace()
    for _ in range(3):
        trace.run(f"{MODULE_PREFIX}Net", 1)
        trace.run(EVALUATE, 2)
        trace.add("c10d::allreduce_", 0.1)
        trace.wait(30)
        trace.run("Optimizer.step#AdamW.step", 1, "user_annotation")
        trace.mark()
    times, verdict = judged(trace, PlainSteps(0.034, 0.0, "cpu"))
    assert (verdict.bound, verdict.gains) == ("ranks", ())
    assert times.ranks_s == pytest.approx(0.03, rel=0.02)


def test_an_optimizer_whose_closure_makes_the_passes() -> None:
    trace = Trace()
    for _ in range(3):
        trace.add("Optimizer.step#Adam.step", 36, "user_annotation")
        trace.run(f"{MODULE_PREFIX}Net", 30)
        trace.run(EVALUATE, 5)
        trace.run("aten::addcdiv_", 1)
        trace.mark()
    times, _ = judged(trace, PlainSteps(0.036, 0.0, "cpu"))
    seconds = {part.name: part.seconds for part in times.parts}
    assert (seconds["forward"], seconds["optimizer"]) == pytest.approx((0.03, 0.001), rel=0.05)


def test_steps_with_an_evaluation_are_left_out() -> None:
    trace = Trace()
    for name in (MARK, MARK, PAUSED_MARK, MARK):
        cpu_step(trace, loss_ms=900 if name == PAUSED_MARK else 0)
        trace.mark(name)
    assert reduce_trace(trace.events, PlainSteps(0.01, 0.001, "cpu")).steps == 2


def cuda_trace(kernels: int, kernel_ms: float, launch_ms: float, *, data_ms: float = 0.1, loss_ms: float = 0) -> Trace:
    """Steps whose kernels follow their launches, one after another on the GPU."""
    trace, correlation = Trace(), 0
    gpu_free_ms = 0.0
    for _ in range(4):
        trace.run("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", data_ms, "user_annotation")
        start = trace.now_ms
        trace.add(f"{MODULE_PREFIX}block", kernels * launch_ms)
        for _ in range(kernels):
            correlation += 1
            trace.add("aten::mm", launch_ms)
            trace.add("cudaLaunchKernel", launch_ms * 0.5, "cuda_runtime", correlation=correlation)
            gpu_free_ms = max(gpu_free_ms, trace.now_ms)
            trace.add("void gemm<4>(float*)", kernel_ms, "kernel", GPU, gpu_free_ms, correlation=correlation)
            gpu_free_ms += kernel_ms
            trace.wait(launch_ms)
        assert trace.now_ms > start
        trace.wait(loss_ms)
        trace.run("Optimizer.step#AdamW.step", 0.1, "user_annotation")
        if gpu_free_ms > trace.now_ms:  # reading the loss
            trace.run("cudaStreamSynchronize", gpu_free_ms - trace.now_ms, "cuda_runtime")
        trace.mark()
    return trace


@pytest.mark.parametrize(
    ("trace", "step_s", "bound"),
    [
        (cuda_trace(500, 0.004, 0.02), 0.0101, "launch"),  # 10 ms of launches for 2 ms of kernels
        (cuda_trace(50, 1.0, 0.02), 0.0503, "device"),
        (cuda_trace(50, 0.2, 0.02, loss_ms=40), 0.0412, "host"),
        (cuda_trace(50, 0.2, 0.02, data_ms=60), 0.0702, "input"),
    ],
)
def test_what_bounds_a_step_on_a_gpu(trace: Trace, step_s: float, bound: str) -> None:
    times, verdict = judged(trace, PlainSteps(step_s, 0.0, "cuda"))
    assert verdict.bound == bound
    assert times.operators[0].name == "aten::mm"
    assert times.modules[0].name == "block"
    assert sum(gain.share for gain in verdict.gains if "module" not in gain.remedy) <= 1.0


@pytest.mark.parametrize("text", [b"", b'{"traceEvents": [{"name": "a"', b"[]", b'{"traceEvents": [1]}'])
def test_a_torn_trace(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_trace(text)


def test_a_trace_without_a_step() -> None:
    trace = Trace()
    trace.mark()
    with pytest.raises(ValueError, match="no complete step"):
        reduce_trace(trace.events, PlainSteps(0.01, 0.0, "cpu"))


def test_a_step_without_a_free_core_is_not_bound_by_what_it_computes() -> None:
    """As the finding of other programs says it, whose wait is in every part of the step alike."""
    times, alone = judged(cpu_trace(), PlainSteps(0.010, 0.001, "cpu"))
    busy = judge_step(times, (), 0.7)
    assert (alone.bound, busy.bound, busy.sentence) == (
        "device",
        "cores",
        "Short of cores: 70 % of a step is a wait for a free core.",
    )
    assert busy.gains[0].remedy == "free cores: fewer threads and workers, or no other programs"
    assert all(gain.share <= 0.3 for gain in busy.gains[1:])


def test_what_the_profiled_steps_took_less_on_busy_cores_is_a_wait_for_one() -> None:
    """The profile is of a moment with free cores; the steps before it are as long as the finding says."""
    times, alone = judged(cpu_trace(), PlainSteps(0.020, 0.001, "cpu"))
    busy = judge_step(times, (), 0.07)
    assert times.profiled_step_s < 0.011
    assert (alone.bound, busy.bound) == ("device", "cores")
    assert busy.share == pytest.approx(1 - times.profiled_step_s / 0.020)
