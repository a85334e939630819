"""A trace of `torch.profiler` reduced to one optimizer step: its parts, modules, operators, and what the GPU idles for.

The trace is Chrome's JSON, as Kineto writes it: times in microseconds, one event a call. The observer adds the ends of
steps and the calls of the model's modules, under their names (`step_profile.py`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from tuner_tui.core.text import single_line

MARK, PAUSED_MARK, MODULE_PREFIX = "tuner.step", "tuner.paused-step", "tuner.module:"
DATA, BACKWARD, OPTIMIZER = "enumerate(DataLoader)", "autograd::engine::evaluate_function", "Optimizer."
GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
RUNTIME_CATEGORIES = frozenset({"cuda_runtime", "cuda_driver"})
COLLECTIVE = ("nccl", "rccl")
"""Kernels that exchange with other ranks, and wait for them."""
OWN_CODE_US = 100.0
"""A pause between operators from which on it is the program's own code, and not the way from one to the next."""
AFTER = {
    "data": "before the model",
    "transfer": "before the model",
    "forward": "loss",
    "backward": "gradients",
    "optimizer": "after the step",
}
"""The part that follows each part until the next one begins."""
SLOWED_DOWN = 1.3
MOST_SLOWED = 4.0
"""How many times as long operators take under the profiler, at most."""
EXCHANGES, RANKS = ("c10d::", "gloo:", "nccl:"), "other ranks"
WITHOUT_OWN_CODE = ("data", "transfer", "backward", "optimizer")
MAX_ROWS = 40


class _Arguments(msgspec.Struct):
    sequence: int | str | None = msgspec.field(default=None, name="Sequence number")
    correlation: int | str | None = None


class TraceEvent(msgspec.Struct):
    """One event: `ph` is X for one with a duration."""

    name: str = ""
    ph: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    tid: int | str = 0
    args: _Arguments = msgspec.field(default_factory=_Arguments)


class _TraceFile(msgspec.Struct):
    traceEvents: list[TraceEvent]


@dataclass(frozen=True, slots=True)
class PlainSteps:
    """What was measured of as many steps without the profiler: means of a step, and the device that computes."""

    step_s: float
    data_s: float
    device: str


@dataclass(frozen=True, slots=True)
class PartTime:
    """Seconds of a step in one part of it, of which `own_s` in code without an operator."""

    name: str
    seconds: float
    own_s: float


@dataclass(frozen=True, slots=True)
class CallTime:
    """Seconds of a step in a module or an operator, without what it calls in others, and how often it is called.

    Of the GPU where there is one, else of the CPU.
    """

    name: str
    seconds: float
    calls: float


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One step, as long as without the profiler. `busy_s`: of the GPU, None without one.

    `idle_s`: the seconds that the GPU does not compute, by what the training does meanwhile: `input`, `host`, `launch`,
    or `ranks` where only a collective runs on it.
    """

    steps: int
    device: str
    step_s: float
    profiled_step_s: float
    parts: tuple[PartTime, ...]
    modules: tuple[CallTime, ...]
    operators: tuple[CallTime, ...]
    kernels: float = 0.0
    busy_s: float | None = None
    idle_s: Mapping[str, float] | None = None

    @property
    def ranks_s(self) -> float:
        """Seconds of waiting for other ranks, or of a collective that runs alone."""
        if self.idle_s is not None:
            return self.idle_s["ranks"]
        return sum(part.own_s for part in self.parts if part.name == RANKS)

    def share(self, seconds: float) -> float:
        """Of the step."""
        return min(1.0, seconds / self.step_s) if self.step_s else 0.0


class _Span(NamedTuple):
    start: float
    end: float
    kind: str


def read_trace(text: bytes) -> list[TraceEvent]:
    """Decode a trace. Raises `ValueError` for one that is torn or of another form."""
    return [event for event in msgspec.json.decode(text, type=_TraceFile).traceEvents if event.ph == "X"]


def reduce_trace(events: Iterable[TraceEvent], plain: PlainSteps) -> StepTimes:
    """Reduce the complete steps of a trace to one. Raises `ValueError` if there is none."""
    ordered = sorted(events, key=lambda event: (event.ts, -event.dur))
    marks = [event for event in ordered if event.name in (MARK, PAUSED_MARK)]
    ends = [mark.ts + mark.dur for mark in marks]
    # A step with an evaluation or a checkpoint in it is not one of those that are looked for.
    windows = [(start, end) for start, end, mark in zip(ends, ends[1:], marks[1:], strict=False) if mark.name == MARK]
    if not windows:
        raise ValueError("the trace holds no complete step")
    profiled_us = sum(end - start for start, end in windows) / len(windows)
    if profiled_us / 1e6 > SLOWED_DOWN * plain.step_s:  # by the profiler, or for want of a core: the quicker half then
        quickest = sorted(windows, key=lambda window: window[1] - window[0])[: (len(windows) + 1) // 2]
        windows = sorted(quickest)
    steps = _Windows(windows)
    window_us = sum(end - start for start, end in windows) / len(windows)
    calls = _Calls(ordered, steps)
    timeline = list(_timeline(ordered, calls, marks[0].tid, steps))
    on_gpu = [event for event in ordered if event.cat in GPU_CATEGORIES and steps.holds(event.ts)]
    # The profiler makes operators slower, but neither the loader nor code without operators. Where plain steps took
    # longer even so, the machine was busy, and everything but the loader took its share of that.
    count = len(windows) * 1e6
    data_s = sum(span.end - span.start for span in timeline if span.kind == "data") / count
    own_s = sum(span.end - span.start for span in timeline if span.kind.startswith("own:")) / count
    mean_own_s = own_s
    others_s = window_us / 1e6 - data_s - own_s
    plain_data_s = min(plain.data_s or data_s, plain.step_s)
    stretch = max(1.0, (plain.step_s - plain_data_s) / (own_s + others_s)) if own_s + others_s > 0 else 1.0
    most_own = own_s / (own_s + others_s / MOST_SLOWED) if own_s + others_s > 0 else 0.0
    own_s = min(own_s * stretch, (plain.step_s - plain_data_s) * most_own)
    scale = (plain.step_s - plain_data_s - own_s) / others_s if others_s > 0 else 0.0
    factors = {
        "data": plain_data_s / data_s if data_s else 0.0,
        "own": own_s / mean_own_s if mean_own_s else 0.0,
        "other": scale,
    }
    gpu = _GpuCalls(on_gpu, calls) if plain.device != "cpu" and on_gpu else None
    idle = None if gpu is None else _idle_s(gpu.busy, timeline, windows)
    if gpu is not None and idle is not None:
        rest_s = max(0.0, plain.step_s - gpu.busy_us / count)
        host_s = min(idle["host"] / count, rest_s)
        input_s = min(idle["input"] / count, rest_s - host_s)
        ranks_s = min(idle["ranks"] / count, rest_s - host_s - input_s)
        collective_s = gpu.collective_us / count + ranks_s
        idle = {"input": input_s, "host": host_s, "launch": rest_s - host_s - input_s - ranks_s, "ranks": collective_s}
    unit = scale / count if gpu is None else 1 / count
    tables = calls if gpu is None else gpu
    return StepTimes(
        steps=len(windows),
        device=plain.device,
        step_s=plain.step_s,
        profiled_step_s=profiled_us / 1e6,
        parts=_parts(timeline, count, factors),
        modules=_rows(tables.of_modules, calls.module_calls, unit, len(windows)),
        operators=_rows(tables.of_operators, calls.operator_calls, unit, len(windows)),
        kernels=len(on_gpu) / len(windows),
        busy_s=None if gpu is None else (gpu.busy_us - gpu.collective_us) / count,
        idle_s=idle,
    )


class _Windows:
    """The steps that are counted."""

    def __init__(self, windows: Sequence[tuple[float, float]]) -> None:
        self._starts = [start for start, _ in windows]
        self.windows = windows

    def holds(self, time: float) -> bool:
        number = bisect_right(self._starts, time) - 1
        return number >= 0 and time < self.windows[number][1]


class _Calls:
    """The calls of all threads: time in each operator and module, and the module and operator of each call."""

    def __init__(self, ordered: Iterable[TraceEvent], steps: _Windows) -> None:
        self.of_modules: defaultdict[str, float] = defaultdict(float)
        self.of_operators: defaultdict[str, float] = defaultdict(float)
        self.module_calls: Counter[str] = Counter()
        self.operator_calls: Counter[str] = Counter()
        self.by_correlation: dict[int | str, tuple[str | None, str | None]] = {}
        self.outermost: set[int] = set()
        """`id` of each event that lies in no operator, and of each module that lies in no other one."""
        self._steps = steps
        stacks: dict[int | str, list[tuple[TraceEvent, str | None]]] = defaultdict(list)
        modules: dict[int | str, str] = {}
        for event in ordered:
            launches = event.cat in RUNTIME_CATEGORIES and event.args.correlation is not None
            if not launches and (event.cat not in ("cpu_op", "user_annotation") or event.name in (MARK, PAUSED_MARK)):
                continue
            stack = stacks[event.tid]
            while stack and stack[-1][0].ts + stack[-1][0].dur <= event.ts:
                stack.pop()
            if not launches:
                self._add(event, stack, modules)
            elif event.args.correlation is not None and stack:
                names = (operator_name(each) for each, _ in reversed(stack) if is_operator(each))
                self.by_correlation[event.args.correlation] = next(names, None), stack[-1][1]

    def _add(
        self, event: TraceEvent, stack: list[tuple[TraceEvent, str | None]], modules: dict[int | str, str]
    ) -> None:
        parent, module = stack[-1] if stack else (None, None)
        is_module, sequence = event.name.startswith(MODULE_PREFIX), event.args.sequence
        if is_module:
            module = event.name.removeprefix(MODULE_PREFIX)
        elif event.name.startswith(BACKWARD):
            module = modules.get(sequence, module) if sequence is not None else module
        elif module is not None and sequence is not None:
            modules[sequence] = module  # the last operator with this number made the node of the backward pass
        if (
            parent is None
            or (is_operator(event) and not is_operator(parent))
            or (is_module and not any(each.name.startswith((MODULE_PREFIX, BACKWARD)) for each, _ in stack))
        ):
            self.outermost.add(id(event))
        stack.append((event, module))
        if not self._steps.holds(event.ts):
            return
        if is_module and module is not None:
            self.module_calls[module] += 1
        if module is not None:
            self.of_modules[module] += event.dur
        if is_operator(event):
            self.operator_calls[operator_name(event)] += 1
            self.of_operators[operator_name(event)] += event.dur
        if parent is not None:  # the time of the inner call is not that of the outer one
            outer = stack[-2][1]
            if outer is not None:
                self.of_modules[outer] -= event.dur
            if is_operator(parent):
                self.of_operators[operator_name(parent)] -= event.dur


class _GpuCalls:
    """The GPU's time in each operator and module, and the spans in which it is busy."""

    def __init__(self, on_gpu: Sequence[TraceEvent], calls: _Calls) -> None:
        self.of_modules: defaultdict[str, float] = defaultdict(float)
        self.of_operators: defaultdict[str, float] = defaultdict(float)
        for event in on_gpu:
            operator, module = calls.by_correlation.get(event.args.correlation or -1, (None, None))
            self.of_operators[operator or _kernel_name(event.name)] += event.dur
            if module is not None:
                self.of_modules[module] += event.dur
        self.busy = list(_union((event.ts, event.ts + event.dur) for event in on_gpu))
        work = _union((event.ts, event.ts + event.dur) for event in on_gpu if not event.name.startswith(COLLECTIVE))
        self.busy_us = sum(end - start for start, end in self.busy)
        self.collective_us = self.busy_us - sum(end - start for start, end in work)


def _kernel_name(name: str) -> str:
    return re.split(r"[<(]", name.removeprefix("void "), maxsplit=1)[0]


def is_operator(event: TraceEvent) -> bool:
    """Whether it is a call of an operator, not a mark around some."""
    return event.cat == "cpu_op" and not event.name.startswith((MODULE_PREFIX, DATA, OPTIMIZER))


def operator_name(event: TraceEvent) -> str:
    return "backward of " + event.name.rpartition(": ")[2] if event.name.startswith(BACKWARD) else event.name


def _timeline(ordered: Sequence[TraceEvent], calls: _Calls, thread: int | str, steps: _Windows) -> Iterator[_Span]:
    """What the training does, without holes: spans of each part, those without an operator as `own:PART`."""
    marked: list[_Span] = []
    working: list[tuple[float, float]] = []
    for event in ordered:
        end, part = event.ts + event.dur, _part(event, calls, thread)
        if part is not None:
            marked.append(_Span(event.ts, end, part))
        is_work = event.cat in RUNTIME_CATEGORIES or (is_operator(event) and id(event) in calls.outermost)
        if event.name.startswith(BACKWARD) or (event.tid == thread and is_work):
            working.append((event.ts, end))
    work, spans = list(_union(working)), list(_without_overlap(marked))
    # DistributedDataParallel waits at the end of the backward pass, where no operator says so.
    exchanges = any(event.name.startswith(EXCHANGES) for event in ordered)
    after = AFTER | ({"backward": RANKS} if exchanges else {})
    has_forward = any(span.kind == "forward" for span in spans)
    for start, end in steps.windows:
        inside = [
            _Span(max(span.start, start), min(span.end, end), span.kind)
            for span in spans
            if span.end > start and span.start < end
        ]
        before, kind = start, "optimizer"
        for span in [*inside, _Span(end, end, "optimizer")]:
            rest = "forward" if span.kind == "backward" and not has_forward else after[kind]
            if kind == span.kind == "backward":
                yield _Span(before, span.start, "backward")
            else:
                yield from _split(before, span.start, rest, work)
            if span.kind in WITHOUT_OWN_CODE:
                yield span
            else:
                yield from _split(span.start, span.end, span.kind, work)
            before, kind = max(before, span.end), span.kind


def _part(event: TraceEvent, calls: _Calls, thread: int | str) -> str | None:
    if event.name.startswith(BACKWARD):
        return "backward"
    if event.tid != thread:
        return None
    if event.name.startswith(MODULE_PREFIX):
        return "forward" if id(event) in calls.outermost else None
    if event.cat in RUNTIME_CATEGORIES:
        return "transfer" if event.name.startswith("cudaMemcpy") else None
    return "data" if event.name.startswith(DATA) else "optimizer" if event.name.startswith(OPTIMIZER) else None


def _without_overlap(spans: Iterable[_Span]) -> Iterator[_Span]:
    """The outer one of spans that lie in each other."""
    end = 0.0
    for span in spans:
        if span.end > end:
            yield _Span(max(span.start, end), span.end, span.kind)
            end = span.end


def _split(start: float, end: float, part: str, work: Sequence[tuple[float, float]]) -> Iterator[_Span]:
    """The span of a part, with long pauses between operators in spans of their own."""
    number = max(0, bisect_right(work, (start, start)) - 1)
    for begins, ends in [*_overlapping(work, number, start, end), (end, end)]:
        if begins - start > 0:
            yield _Span(start, begins, f"own:{part}" if begins - start >= OWN_CODE_US else part)
        if ends > max(start, begins):
            yield _Span(max(start, begins), ends, part)
        start = max(start, ends)


def _overlapping(
    spans: Sequence[tuple[float, float]], number: int, start: float, end: float
) -> Iterator[tuple[float, float]]:
    while number < len(spans) and spans[number][0] < end:
        if spans[number][1] > start:
            yield max(spans[number][0], start), min(spans[number][1], end)
        number += 1


def _union(spans: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Spans, ordered by their start, joined where they touch."""
    start = end = None
    for begins, ends in spans:
        if start is None or end is None or begins > end:
            if start is not None and end is not None:
                yield start, end
            start, end = begins, ends
        else:
            end = max(end, ends)
    if start is not None and end is not None:
        yield start, end


def _idle_s(
    busy: Sequence[tuple[float, float]], timeline: Iterable[_Span], windows: Sequence[tuple[float, float]]
) -> dict[str, float]:
    """The microseconds in which the GPU idles, by what the training does meanwhile."""
    idle = {"input": 0.0, "host": 0.0, "launch": 0.0, "ranks": 0.0}
    for span in timeline:
        number = max(0, bisect_right(busy, (span.start, span.start)) - 1)
        used = sum(end - start for start, end in _overlapping(busy, number, span.start, span.end))
        is_host = span.kind == "transfer" or span.kind.startswith("own:")
        kind = "input" if span.kind == "data" else "host" if is_host else "launch"
        kind = "ranks" if span.kind == f"own:{RANKS}" else kind
        idle[kind] += span.end - span.start - used
    return idle


def _parts(timeline: Iterable[_Span], count: float, factors: Mapping[str, float]) -> tuple[PartTime, ...]:
    total: defaultdict[str, float] = defaultdict(float)
    own: defaultdict[str, float] = defaultdict(float)
    for span in timeline:
        part, is_own = span.kind.removeprefix("own:"), span.kind.startswith("own:") or span.kind == "transfer"
        kind = "own" if is_own else "data" if part == "data" else "other"
        seconds = (span.end - span.start) / count * factors[kind]
        total[part] += seconds
        own[part] += seconds if is_own else 0.0
    order = ("data", "transfer", "before the model", "forward", "loss", "backward", "gradients", "optimizer")
    names = [*(name for name in order if name in total), *(name for name in total if name not in order)]
    return tuple(PartTime(name, total[name], own[name]) for name in names)


def _rows(seconds: Mapping[str, float], calls: Mapping[str, int], unit: float, steps: int) -> tuple[CallTime, ...]:
    names = sorted(seconds, key=lambda name: -seconds[name])[:MAX_ROWS]
    return tuple(
        CallTime(single_line(name), max(0.0, seconds[name] * unit), calls.get(name, 0) / steps) for name in names
    )
