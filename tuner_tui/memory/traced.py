"""The estimate that a trace makes."""

from __future__ import annotations

from itertools import pairwise

from tuner_tui.memory.device import Device
from tuner_tui.memory.estimate import MemoryEstimate, of_lines
from tuner_tui.memory.optimizers import optimizer_bytes
from tuner_tui.memory.step import Moment
from tuner_tui.memory.trace import Trace, TracedPeak
from tuner_tui.settings.model import Settings

TRACED_DOUBT = 0.05
"""On a CPU tracing is within 1 % of what torch allocated, in most cases; a GPU's allocator and kernels add to it."""


def traced_estimate(trace: Trace, settings: Settings, device: Device, processes: int = 1) -> MemoryEstimate:
    """What `trace` says of the micro batch of `settings`; sizes of one process."""
    return of_lines(traced_lines(trace, settings, device, processes), settings, device, TRACED_DOUBT, "traced")


def traced_lines(trace: Trace, settings: Settings, device: Device, processes: int) -> tuple[Moment, ...]:
    """The traced peaks as straight lines in the micro batch, whose largest is the peak."""
    buckets = trace.gradient_bytes if processes > 1 else 0
    states, step = trace.state_bytes, trace.step_bytes
    if states is None:
        each = optimizer_bytes(settings.optim, device.on_gpu, 4)
        states = round(each.kept * trace.trainable)
        step += states + round(each.temporary * trace.trainable)
    known = trace.state_bytes or 0
    lines = [_chord(low, high, trace.weight_bytes, buckets, states, known) for low, high in pairwise(trace.train)]
    if device.cards > 1:  # DataParallel sums all cards' gradients beside its own
        end = Moment("backward's end", trace.weight_bytes, 2 * trace.gradient_bytes, states, 0, 0)
        lines = [*lines, end]
    fixed = trace.weight_bytes + trace.gradient_bytes + states
    step_line = Moment(
        "optimizer step", trace.weight_bytes, trace.gradient_bytes + buckets, states, max(0, step - fixed), 0
    )
    evaluation = _at(trace.evaluation, settings.per_device_eval_batch_size) - known
    return (
        *lines,
        step_line,
        Moment("evaluation", trace.weight_bytes, buckets, states, evaluation - trace.weight_bytes, 0),
    )


def _chord(low: TracedPeak, high: TracedPeak, weights: int, buckets: int, states: int, known: int) -> Moment:
    """The line through two traced batches; its parts are those of the larger one."""
    slope = (high.total - low.total) / (high.batch - low.batch)
    rest = high.total - slope * high.batch - weights - high.copies - high.gradients - known
    return Moment("forward and backward", weights + high.copies, high.gradients + buckets, states, rest, slope)


def _at(points: tuple[TracedPeak, ...], batch: int) -> float:
    """The peak at any batch: on the chord around it, or on the last one prolonged."""
    pairs = list(pairwise(points))
    low, high = next(((low, high) for low, high in pairs if batch <= high.batch), pairs[-1])
    return low.total + (high.total - low.total) / (high.batch - low.batch) * (batch - low.batch)
