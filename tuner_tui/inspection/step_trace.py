"""A trace of `torch.profiler` reduced to one optimizer step: its parts, modules, operators, and what the GPU idles for.

The trace is Chrome's JSON, as Kineto writes it: times in microseconds, one event a call. The observer adds the ends of
steps and the calls of the model's modules, under their names (`step_profile.py`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
from msgspec import Struct

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

    @property
    def end(self) -> float:
        return self.ts + self.dur


class _TraceFile(msgspec.Struct):
    traceEvents: list[TraceEvent]


class PlainSteps(Struct, frozen=True):
    """What was measured of as many steps without the profiler: means of a step, and the device that computes."""

    step_s: float
    data_s: float
    device: str


class PartTime(Struct, frozen=True):
    """Seconds of a step in one part of it, of which `own_s` in code without an operator."""

    name: str
    seconds: float
    own_s: float


class CallTime(Struct, frozen=True):
    """Seconds of a step in a module or an operator, without what it calls in others, and how often it is called.

    Of the GPU where there is one, else of the CPU.
    """

    name: str
    seconds: float
    calls: float


class StepTimes(Struct, frozen=True):
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
    kind: str = ""

    @property
    def us(self) -> float:
        return self.end - self.start


def read_trace(text: bytes) -> list[TraceEvent]:
    """Decode a trace. Raises `ValueError` for one that is torn or of another form."""
    return [event for event in msgspec.json.decode(text, type=_TraceFile).traceEvents if event.ph == "X"]


def reduce_trace(events: Iterable[TraceEvent], plain: PlainSteps) -> StepTimes:
    """Reduce the complete steps of a trace to one. Raises `ValueError` if there is none."""
    ordered = sorted(events, key=lambda event: (event.ts, -event.dur))
    marks = [event for event in ordered if event.name in (MARK, PAUSED_MARK)]
    steps = _Steps(marks, plain.step_s)
    calls = _Calls(ordered, steps)
    timeline = list(_timeline(ordered, calls, marks[0].tid, steps))
    factors = _factors(timeline, steps.unit, plain)
    on_gpu = [event for event in ordered if event.cat in GPU_CATEGORIES and steps.holds(event.ts)]
    unit, working_s, idle = steps.unit, None, None
    if plain.device == "cpu" or not on_gpu:
        unit *= factors["other"]
    else:
        calls.take_from_gpu(on_gpu)
        busy = _union(on_gpu)
        working = _union(event for event in on_gpu if not event.name.startswith(COLLECTIVE))
        busy_s, working_s = sum(span.us for span in busy) * unit, sum(span.us for span in working) * unit
        idle = _idle_s(busy, timeline, unit, max(0.0, plain.step_s - busy_s))
        idle["ranks"] += busy_s - working_s
    return StepTimes(
        steps=steps.count,
        device=plain.device,
        step_s=plain.step_s,
        profiled_step_s=steps.profiled_s,
        parts=_parts(timeline, steps.unit, factors),
        modules=_rows(calls.of_modules, calls.module_calls, unit, steps.count),
        operators=_rows(calls.of_operators, calls.operator_calls, unit, steps.count),
        kernels=len(on_gpu) / steps.count,
        busy_s=working_s,
        idle_s=idle,
    )


class _Steps:
    """The complete steps between `marks`; the quicker half if the profiler, or the want of a core, slows them down.

    A step with an evaluation or a checkpoint in it is not one of those that are looked for. `profiled_s`: the mean of
    all. `unit`: the seconds of a step that a microsecond of all of them is.
    """

    def __init__(self, marks: Sequence[TraceEvent], plain_step_s: float) -> None:
        windows = [_Span(last.end, mark.end) for last, mark in pairwise(marks) if mark.name == MARK]
        if not windows:
            raise ValueError("the trace holds no complete step")
        self.profiled_s = sum(window.us for window in windows) / len(windows) / 1e6
        if self.profiled_s > SLOWED_DOWN * plain_step_s:
            windows = sorted(sorted(windows, key=lambda window: window.us)[: (len(windows) + 1) // 2])
        self.windows, self.count = windows, len(windows)
        self.unit = 1e-6 / self.count

    def holds(self, time: float) -> bool:
        number = bisect_right(self.windows, (time, float("inf"))) - 1
        return number >= 0 and time < self.windows[number].end


def _factors(timeline: Iterable[_Span], unit: float, plain: PlainSteps) -> dict[str, float]:
    """How many times as long each kind of code takes in a plain step.

    The profiler makes operators slower, but neither the loader nor code without operators. Where plain steps took
    longer even so, the machine was busy, and everything but the loader took its share of that.
    """
    seconds = {"data": 0.0, "own": 0.0, "other": 0.0}
    for span in timeline:
        seconds[_kind(span)] += span.us * unit
    own_s, other_s = seconds["own"], seconds["other"]
    plain_s = {"data": min(plain.data_s or seconds["data"], plain.step_s), "own": 0.0}
    rest_s = plain.step_s - plain_s["data"]
    if own_s + other_s > 0:
        stretch, most_own = max(1.0, rest_s / (own_s + other_s)), own_s / (own_s + other_s / MOST_SLOWED)
        plain_s["own"] = min(own_s * stretch, rest_s * most_own)
    plain_s["other"] = rest_s - plain_s["own"]
    return {kind: plain_s[kind] / seconds[kind] if seconds[kind] > 0 else 0.0 for kind in seconds}


def _kind(span: _Span) -> str:
    is_own = span.kind == "transfer" or span.kind.startswith("own:")
    return "own" if is_own else "data" if span.kind == "data" else "other"


class _Calls:
    """The calls of all threads: time in each operator and module, and the module and operator of each call."""

    def __init__(self, ordered: Iterable[TraceEvent], steps: _Steps) -> None:
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
            while stack and stack[-1][0].end <= event.ts:
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

    def take_from_gpu(self, on_gpu: Iterable[TraceEvent]) -> None:
        """Replace the times in operators and modules by those of the GPU."""
        self.of_modules.clear()
        self.of_operators.clear()
        for event in on_gpu:
            operator, module = self.by_correlation.get(event.args.correlation or -1, (None, None))
            kernel = re.split(r"[<(]", event.name.removeprefix("void "), maxsplit=1)[0]
            self.of_operators[operator or kernel] += event.dur
            if module is not None:
                self.of_modules[module] += event.dur


def is_operator(event: TraceEvent) -> bool:
    """Whether it is a call of an operator, not a mark around some."""
    return event.cat == "cpu_op" and not event.name.startswith((MODULE_PREFIX, DATA, OPTIMIZER))


def operator_name(event: TraceEvent) -> str:
    return "backward of " + event.name.rpartition(": ")[2] if event.name.startswith(BACKWARD) else event.name


def _timeline(ordered: Sequence[TraceEvent], calls: _Calls, thread: int | str, steps: _Steps) -> Iterator[_Span]:
    """What the training does, without holes: spans of each part, those without an operator as `own:PART`."""
    marked = [_Span(event.ts, event.end, part) for event in ordered if (part := _part(event, calls, thread))]
    work = _union(event for event in ordered if _is_work(event, calls, thread))
    spans = list(_without_overlap(_after_closures(marked)))
    # DistributedDataParallel waits at the end of the backward pass, where no operator says so.
    exchanges = any(event.name.startswith(EXCHANGES) for event in ordered)
    after = AFTER | ({"backward": RANKS} if exchanges else {})
    has_forward = any(span.kind == "forward" for span in spans)
    for start, end, _ in steps.windows:
        before, kind = start, "optimizer"
        for span in [*_overlapping(spans, start, end), _Span(end, end, "optimizer")]:
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


def _is_work(event: TraceEvent, calls: _Calls, thread: int | str) -> bool:
    computes = event.cat in RUNTIME_CATEGORIES or (is_operator(event) and id(event) in calls.outermost)
    return event.name.startswith(BACKWARD) or (event.tid == thread and computes)


def _after_closures(spans: Sequence[_Span]) -> Sequence[_Span]:
    """Leave of an optimizer step what follows the passes that its closure makes, as in Lightning."""

    def rest(step: _Span) -> _Span:
        passes = (span.end for span in spans if span.kind != "optimizer" and step.start <= span.start < step.end)
        return step._replace(start=min(step.end, max(passes, default=step.start)))

    return sorted(rest(span) if span.kind == "optimizer" else span for span in spans)


def _without_overlap(spans: Iterable[_Span]) -> Iterator[_Span]:
    """The outer one of spans that lie in each other."""
    end = 0.0
    for span in spans:
        if span.end > end:
            yield span._replace(start=max(span.start, end))
            end = span.end


def _split(start: float, end: float, part: str, work: Sequence[_Span]) -> Iterator[_Span]:
    """The span of a part, with long pauses between operators in spans of their own."""
    for begins, ends, _ in [*_overlapping(work, start, end), _Span(end, end)]:
        if begins > start:
            yield _Span(start, begins, f"own:{part}" if begins - start >= OWN_CODE_US else part)
        if ends > max(start, begins):
            yield _Span(max(start, begins), ends, part)
        start = max(start, ends)


def _overlapping(spans: Sequence[_Span], start: float, end: float) -> Iterator[_Span]:
    """The parts between `start` and `end` of `spans`, which are ordered and do not overlap."""
    for span in spans[max(0, bisect_right(spans, (start, start)) - 1) :]:
        if span.start >= end:
            break
        if span.end > start:
            yield span._replace(start=max(span.start, start), end=min(span.end, end))


def _union(events: Iterable[TraceEvent]) -> list[_Span]:
    """The spans of events, ordered by their start, joined where they touch."""
    joined: list[_Span] = []
    for event in events:
        if joined and event.ts <= joined[-1].end:
            joined[-1] = joined[-1]._replace(end=max(event.end, joined[-1].end))
        else:
            joined.append(_Span(event.ts, event.end))
    return joined


def _idle_s(busy: Sequence[_Span], timeline: Iterable[_Span], unit: float, most_s: float) -> dict[str, float]:
    """The seconds of a step in which the GPU idles, at most so many, by what the training does meanwhile."""
    seconds = {"host": 0.0, "input": 0.0, "ranks": 0.0}
    kinds = {"own": "host", "data": "input", "other": "launch"}
    for span in timeline:
        kind = "ranks" if span.kind == f"own:{RANKS}" else kinds[_kind(span)]
        if kind in seconds:
            seconds[kind] += (span.us - sum(used.us for used in _overlapping(busy, span.start, span.end))) * unit
    idle: dict[str, float] = {}
    for kind, each_s in seconds.items():
        idle[kind] = min(each_s, most_s)
        most_s -= idle[kind]
    return {**idle, "launch": most_s}


def _parts(timeline: Iterable[_Span], unit: float, factors: Mapping[str, float]) -> tuple[PartTime, ...]:
    total: defaultdict[str, float] = defaultdict(float)
    own_s: defaultdict[str, float] = defaultdict(float)
    for span in timeline:
        part, kind = span.kind.removeprefix("own:"), _kind(span)
        seconds = span.us * unit * factors[kind]
        total[part] += seconds
        own_s[part] += seconds if kind == "own" else 0.0
    order = ("data", "transfer", "before the model", "forward", "loss", "backward", "gradients", "optimizer")
    names = [*(name for name in order if name in total), *(name for name in total if name not in order)]
    return tuple(PartTime(name, total[name], own_s[name]) for name in names)


def _rows(seconds: Mapping[str, float], calls: Mapping[str, int], unit: float, steps: int) -> tuple[CallTime, ...]:
    names = sorted(seconds, key=lambda name: -seconds[name])[:MAX_ROWS]
    return tuple(
        CallTime(single_line(name), max(0.0, seconds[name] * unit), calls.get(name, 0) / steps) for name in names
    )
