"""What bounds a training step, from its parts: pure, the measured step in, the verdict out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from tuner_tui.core.units import format_ms, format_percent
from tuner_tui.inspection.step_trace import RANKS, StepTimes

Bound = Literal["input", "host", "launch", "ranks", "cores", "device"]
LineOf = Literal["data", "training"]

WORTH = 0.05
"""Of a step: what would win less is not offered."""
SMALL_OPERATOR_S, MANY_CALLS = 30e-6, 300
WAITS = {"ranks": "is the exchange with them, or the wait for it", "cores": "is a wait for a free core"}
SYNCHRONISING = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")
WHERE = {
    "transfer": "in copies between host and GPU",
    "before the model": "between the batch and the model",
    "forward": "in the forward pass",
    "loss": "between the model and backward()",
    "backward": "in the backward pass",
    "gradients": "between backward() and the optimizer",
    "optimizer": "in the optimizer",
    "after the step": "after the optimizer step",
}
OUTSIDE_MODULES = {name: WHERE[name] for name in ("before the model", "loss", "gradients", "after the step")} | {
    "optimizer": "the optimizer"
}


class HotLine(Struct, frozen=True):
    """A line of the program's own, and the share of the looks at the stacks in which it was being executed."""

    text: str
    share: float
    of: LineOf


class Gain(Struct, frozen=True):
    """A remedy, and the largest share of the step that it can win."""

    remedy: str
    share: float


class SlowStep(Struct, frozen=True):
    """The verdict. `where` names the module, operator, part or line; `gains` stand in the order of their shares."""

    bound: Bound
    share: float
    where: str
    sentence: str
    evidence: tuple[str, ...]
    gains: tuple[Gain, ...]


def judge_step(times: StepTimes, lines: Sequence[HotLine] = (), queued: float = 0.0) -> SlowStep:
    """Say what bounds the step. `lines`: where it was seen, most often first; `queued`: its share without a core."""
    shares = _shares(times, queued)
    bound = max(shares, key=lambda kind: shares[kind])
    where, reason = _reason(bound, times, lines)
    slower = times.profiled_step_s >= times.step_s
    profiled = f"{format_ms(times.profiled_step_s)}{'' if slower else ', less than other steps took'}"
    evidence = [f"{format_ms(times.step_s)} a step; with the profiler {profiled}"]
    if times.busy_s is not None:
        busy = format_percent(times.share(times.busy_s) * 100)
        evidence.append(f"GPU busy {busy}, {times.kernels:.0f} kernels a step")
    if bound in ("device", "launch"):
        evidence += _many_calls(times)
    kind = "data" if bound == "input" else "training"
    seen = [line for line in lines if line.of == kind and line.share >= WORTH][:3]
    evidence += [f"observed {format_percent(line.share * 100)} of the time in {line.text}" for line in seen]
    gains = sorted((gain for gain in _gains(times, shares) if gain.share >= WORTH), key=lambda gain: -gain.share)
    name = {"ranks": "Bound by other ranks", "cores": "Short of cores"}.get(bound, f"{bound.capitalize()}-bound")
    sentence = f"{name}: {format_percent(shares[bound] * 100)} of a step {reason}."
    return SlowStep(bound, shares[bound], where, sentence, tuple(evidence), tuple(gains))


def _shares(times: StepTimes, queued: float) -> dict[Bound, float]:
    """The share of the step that each of them takes; together at most one."""
    if times.idle_s is not None and times.busy_s is not None:
        idle: tuple[Bound, ...] = ("input", "host", "launch", "ranks")
        shares = {**{kind: times.share(times.idle_s[kind]) for kind in idle}, "device": times.share(times.busy_s)}
    else:
        waits = times.share(sum(part.seconds for part in times.parts if part.name == "data"))
        ranks = times.share(times.ranks_s)
        host = max(0.0, times.share(sum(part.own_s for part in times.parts)) - ranks)
        shares = {"input": waits, "host": host, "ranks": ranks, "device": max(0.0, 1 - waits - host - ranks)}
        if queued >= WORTH:  # what the profiled steps took less than all, while the cores were busy, is a wait for one
            queued = max(queued, times.share(times.step_s - times.profiled_step_s))
    by_cpu: tuple[Bound, ...] = ("host", "launch" if "launch" in shares else "device")
    computes = sum(shares[kind] for kind in by_cpu)
    cores = min(queued, computes)  # a wait for a core is in all that the CPU does alike
    return {**shares, **{kind: shares[kind] * (1 - cores / (computes or 1.0)) for kind in by_cpu}, "cores": cores}


def _reason(bound: Bound, times: StepTimes, lines: Sequence[HotLine]) -> tuple[str, str]:
    if bound == "input":
        line = next((line.text for line in lines if line.of == "data"), None)
        return line or "data", "waits for the next batch" + (f", most often in {line}" if line else "")
    if bound == "host":
        part = max((part for part in times.parts if part.name != RANKS), key=lambda part: part.own_s)
        line = next((line.text for line in lines if line.of == "training"), None)
        where = WHERE.get(part.name, part.name)
        return line or where, f"passes in the program's own code, most {where}" + (f": {line}" if line else "")
    if bound == "launch":
        part = max((part for part in times.parts if part.name != "data"), key=lambda part: part.seconds - part.own_s)
        return part.name, f"the GPU waits for its next kernel, most {WHERE.get(part.name, part.name)}"
    if bound in WAITS:
        return bound, WAITS[bound]
    device = "CPU" if times.busy_s is None else "GPU"
    name, share = _largest(times)
    line = next((line.text for line in lines if line.of == "training" and name in WHERE.values()), None)
    where = f"{name.removeprefix('in ')} ({format_percent(share * 100)} of the step)" + (f": {line}" if line else "")
    return line or name, f"the {device} computes, most of it {'' if name in WHERE.values() else 'in '}{where}"


def _largest(times: StepTimes) -> tuple[str, float]:
    """The module, or the optimizer, that takes the most; the operator where no module is known."""
    rows = [(f"module {row.name}", times.share(row.seconds)) for row in times.modules[:1]]
    outside = [part for part in times.parts if part.name in OUTSIDE_MODULES]
    rows += [(OUTSIDE_MODULES[part.name], times.share(part.seconds - part.own_s)) for part in outside]
    if not times.modules:
        rows += [(row.name, times.share(row.seconds)) for row in times.operators[:1]]
    return max(rows, key=lambda row: row[1], default=("the step", 1.0))


def _many_calls(times: StepTimes) -> Iterator[str]:
    for row in times.operators[:3]:
        share = times.share(row.seconds)
        if share >= WORTH:
            times_called = f"{row.calls:,.0f} time{'s' * (round(row.calls) != 1)}"
            yield f"{row.name}: {format_percent(share * 100)} of the step, called {times_called}"
    calls = sum(row.calls for row in times.operators)
    spent = sum(row.seconds for row in times.operators)
    if calls > MANY_CALLS and spent / calls < SMALL_OPERATOR_S:
        yield f"{calls:.0f} operators a step take {spent / calls * 1e6:.1f} µs each: many small ones"


def _gains(times: StepTimes, shares: dict[Bound, float]) -> Iterator[Gain]:
    runs = 1 - shares["cores"]
    yield Gain("free cores: fewer threads and workers, or no other programs", shares["cores"])
    yield Gain("have batches ready in time: more loader workers, or cheaper samples and collate", shares["input"])
    parts = [part for part in times.parts if part.name != RANKS]
    own_s = sum(part.own_s for part in parts)
    lost = own_s if times.idle_s is None else min(own_s, times.idle_s["host"])  # the rest overlaps with the GPU's work
    for part in parts:
        own_share, where = times.share(part.own_s / own_s * lost) if own_s else 0.0, WHERE.get(part.name, part.name)
        yield Gain(f"less of the program's own code {where}", runs * own_share)
        if part.name in OUTSIDE_MODULES:
            fused = "a fused optimizer, or one with foreach" if part.name == "optimizer" else ""
            yield Gain(fused or f"fewer or cheaper operators {where}", runs * times.share(part.seconds - part.own_s))
    if "launch" in shares:
        yield Gain("launch less: torch.compile, CUDA graphs, larger batches", shares["launch"])
    waits = sum(row.seconds for row in times.operators if row.name in SYNCHRONISING)
    yield Gain("read values less often (.item(), .cpu(), if on a tensor)", times.share(waits))
    for row in times.modules[:2]:
        yield Gain(f"less time in module {row.name}", runs * times.share(row.seconds))
