"""Where the time of a step goes and what fills the memory, as one stacked bar each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tuner_tui.core.units import format_share
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import LABEL, WARN, Line, Style, TextSpan, labelled_flow, labelled_row, line
from tuner_tui.view.charts import BarPart, stacked_bar
from tuner_tui.view.estimate_rows import figures_of
from tuner_tui.view.run_rows import START_UP, peak_bytes

if TYPE_CHECKING:
    from tuner_tui.advice.crash.oom_analysis import MemoryFigures
    from tuner_tui.advice.estimate import MemoryOutlook
    from tuner_tui.hardware.sample import GpuSample, Sample
    from tuner_tui.runs.events.run_state import RankState, RunState
    from tuner_tui.runs.events.types import Steps

DATA, COMPUTE, OPTIMIZER, REST, EVALUATION = "data", "compute", "optimizer", "between steps", "evaluation"
SAVING, NO_CORE, OTHER_RANKS = "saving", "no free core", "other ranks"
COMPUTE_OR_WAIT = f"{COMPUTE} incl. {NO_CORE}"
PART_OF_CAUSE: Mapping[str, str] = {
    "data-wait": DATA, "too-many-workers": DATA, "waiting-for-workers": DATA, "between-steps": REST,
    "evaluation-share": EVALUATION, "save-share": SAVING, "cpu-contended": NO_CORE, "slow-rank": OTHER_RANKS,
}  # fmt: skip
"""The part of a step's time that a finding with this cause is about."""
STEP_STYLES: Mapping[str, Style] = {
    START_UP: "fill-dim", DATA: "fill-third", NO_CORE: "fill-strong", OTHER_RANKS: "fill-strong", COMPUTE: "fill-curve",
    OPTIMIZER: "fill-fourth", REST: "fill-gauge", EVALUATION: "fill-second", SAVING: "fill-good",
}  # fmt: skip
"""In the order in which they stand in a bar; an evaluation has the colour of its marks in the loss chart."""


def step_shares(state: RunState) -> tuple[dict[str, float], str]:
    """Return the shares of the time of recent steps; of a run that has ended those of all time since the first step.

    They are waiting for data, computing, the optimizer where its time is known, and the loop's own code between steps;
    of a run that has ended evaluation and saving, too. Of several ranks they are those of the rank that loses most
    between two steps, as in the findings, which is named. Empty if unknown.
    """
    ranks = ((rank, rank.latest) for rank in state.ranks.values() if rank.latest)
    shares = ((_rank_shares(rank, latest, state.finished is not None), rank.rank) for rank, latest in ranks)
    measured = [(max(each[DATA], each[REST]), -number, each) for each, number in shares if each]
    _, number, most = max(measured, key=lambda each: each[:2], default=(0.0, 0, {}))
    return most, f"rank {-number}" if len(measured) > 1 else ""


def _rank_shares(rank: RankState, latest: Steps, whole: bool) -> dict[str, float]:
    first = None if whole or len(rank.recent) < 2 else rank.recent[0]
    last = latest if first is None else rank.recent[-1]
    train_s = last.train_s - (first.train_s if first else 0.0)
    if train_s <= 0:
        return {}
    data = (last.data_wait_s - (first.data_wait_s if first else 0.0)) / train_s
    rest = ((last.between_s or 0.0) - ((first.between_s or 0.0) if first else 0.0)) / train_s
    optimizer = 0.0 if last.optimizer_s is None else last.optimizer_s - (first.optimizer_s or 0.0 if first else 0.0)
    outside = _outside_steps(latest) if whole else {}
    training = 1 - sum(outside.values())
    return {
        DATA: data * training,
        COMPUTE: max(0.0, 1 - data - rest - optimizer / train_s) * training,
        **({OPTIMIZER: optimizer / train_s * training} if last.optimizer_s else {}),
        REST: rest * training,
        **outside,
    }


def _outside_steps(counters: Steps) -> dict[str, float]:
    """Return the shares of evaluation and saving in the time since the first step."""
    total_s = counters.train_s + counters.eval_s + counters.save_s
    return {EVALUATION: counters.eval_s / total_s, SAVING: counters.save_s / total_s} if total_s else {}


def step_rows(state: RunState, causes: Mapping[str, float | None], width: int) -> list[Line]:
    """Return the bar of a step's time, and what passes outside of the steps.

    `causes` has the share of the run's time that each finding is about, where it is measured.
    """
    shares, rank = step_shares(state)
    if not shares:
        return []
    outside = _outside_steps(max(state.counters, key=lambda counters: counters.eval_s + counters.save_s))
    training = 1 - sum(outside.values())
    in_steps = {cause: share / training if share and cause == "slow-rank" else share for cause, share in causes.items()}
    shown = [f"{name} {format_share(share)}" for name, share in outside.items() if share >= LEAST_NAMED]
    style: Style = "warn" if _part_of_first(causes) in outside else "dim"
    passes = TextSpan(f"outside the steps: {' · '.join(shown)}" if shown else "", style)
    return time_rows("step", shares, in_steps, width, rank, passes)


def _part_of_first(causes: Iterable[str]) -> str | None:
    """Return the part of the time that the first of `causes` with any is about."""
    return next((PART_OF_CAUSE[cause] for cause in causes if cause in PART_OF_CAUSE), None)


def time_rows(
    label: str,
    shares: Mapping[str, float],
    causes: Mapping[str, float | None],
    width: int,
    rank: str = "",
    *remarks: TextSpan,
) -> list[Line]:
    """Return the bar of shares of the time of `rank`, with the part that the first of `causes` is about in amber."""
    # The loop waits for other ranks while it believes to compute, and for a core in all parts alike; but a wait for
    # data is measured and stays, unless the first finding is about a core. So each finding and the bar say the same.
    avoidable = _part_of_first(causes)
    stay = {DATA, EVALUATION, SAVING, START_UP, avoidable}
    kept = sum(share for name, share in shares.items() if name in stay)
    waits: dict[str, float] = {}
    for cause in ("cpu-contended", "slow-rank"):
        name, share = PART_OF_CAUSE[cause], causes.get(cause) or 0.0
        room = 1.0 - sum(waits.values()) - (0.0 if name == avoidable else kept)
        waits[name] = max(0.0, min(room, share))
    left = 1 - sum(waits.values())
    shares = {**shares, COMPUTE: max(0.0, shares[COMPUTE] - waits[OTHER_RANKS])}
    others = sum(shares.values()) - kept
    measured = min(1.0, left / kept) if kept else 1.0
    rest = min(1.0, max(0.0, left - kept) / others) if others else 1.0
    shown = {**waits, **{name: share * (measured if name in stay else rest) for name, share in shares.items()}}
    # Where it waited for a core, but not how long, computing includes that.
    meanings = {COMPUTE: COMPUTE_OR_WAIT} if "cpu-contended" in causes and not waits[NO_CORE] else {}
    parts = [
        BarPart(f"{WARN} {name}", shown[name], "fill-warn")
        if name == avoidable
        else BarPart(name, shown[name], style, meanings.get(name, ""))
        for name, style in STEP_STYLES.items()
        if name in shown
    ]
    return named_bar(label, parts, width, TextSpan(rank and f"of {rank}", "dim"), *remarks)


def memory_rows(state: RunState | None, sample: Sample | None, outlook: MemoryOutlook | None, width: int) -> list[Line]:
    """Return the bar of what fills the memory, by the run if one has measured it, else by the estimate.

    Below it stand the names of small parts, the peak of the run so far, and the estimate of the next run with its
    uncertainty. The RAM has a gauge, with the rest of the machine.
    """
    estimate = None if outlook is None or not outlook.on_gpu else outlook.estimate
    gpus = [] if state is None or sample is None else [gpu for gpu in sample.gpus if gpu.memory_total_bytes]
    gpu = max(gpus, key=lambda gpu: gpu.memory_used_bytes or 0, default=None)
    measured = {} if state is None or gpu is None else _measured_parts(state, gpu, sample)
    capacity = gpu.memory_total_bytes if measured and gpu is not None else estimate and estimate.capacity_bytes
    model = None if estimate is None else estimate.parts
    estimated = {} if model is None else {
        WEIGHTS: model.weights, GRADIENTS: model.gradients, OPTIMIZER: model.optimizer,
        ACTIVATIONS: model.activations, CONTEXT: model.context + model.slack,
    }  # fmt: skip
    sizes = measured or estimated
    if not sizes or not capacity:
        return []
    too_large = not measured and estimate is not None and estimate.verdict == "too large"
    # What does not fit is a part of the bar, too.
    whole = max(sum(sizes.values()), capacity) if too_large else capacity
    figure, parts = _memory_parts(sizes, capacity, whole)
    remarks = [TextSpan(f"{figure}: too large", "bad")] if too_large else []
    peak = None if state is None else peak_bytes(state)
    if measured and peak is not None:
        remarks.append(TextSpan(f"peak {f.gib(peak)} GiB", "dim"))
    if estimate is not None and not too_large:
        # Until a run measures its memory the bar is that of the estimate, with which it was started.
        name = "next run" if measured or state is None else "estimate"
        remarks.append(TextSpan(f"{name} {figures_of(replace(estimate, capacity_bytes=None))}", "curve"))
    return named_bar("memory", parts, width, *remarks)


def _memory_parts(sizes: Mapping[str, float], capacity: float, whole: float) -> tuple[str, list[BarPart]]:
    """Return what is used of the capacity in words, and the parts of the bar, of `whole` bytes, with what is free."""
    used = sum(sizes.values())
    figure = f"{(f.gib if capacity < f.SMALL_BYTES else f.whole_gib)(used)}/{f.capacity_gib(capacity)} GiB"
    parts = [BarPart(name, size / whole, MEMORY_STYLES[name]) for name, size in sizes.items()]
    return figure, [*parts, BarPart("free", max(0.0, 1 - used / capacity), "dim", f"{figure} · free")]


def full_memory_rows(figures: MemoryFigures, width: int) -> list[Line]:
    """Return the bar of what filled the memory by the figures of an out-of-memory error."""
    from tuner_tui.advice.thresholds import OTHER_PROCESS_BYTES

    capacity, used, held = figures.capacity, figures.in_use, figures.held_by_pytorch
    if not capacity or held is None or figures.free is None:
        return []
    taken = max(held, capacity - figures.free)
    others = 0 if used is None or taken - used < OTHER_PROCESS_BYTES else taken - used
    sizes = {TENSORS: held - (figures.cached or 0), CACHED: figures.cached or 0}
    sizes |= {CONTEXT: taken - held - others, OTHERS: others}
    return named_bar("memory", _memory_parts(sizes, capacity, max(taken, capacity))[1], width)


LEAST_NAMED, LEAST_APART = 0.005, 0.03


def named_bar(label: str, parts: Sequence[BarPart], width: int, *remarks: TextSpan) -> list[Line]:
    """Return a stacked bar, and below it the names of the parts that have no room for theirs, and the remarks.

    Parts below half a percent are left out, and several small ones are one part.
    """
    shown = [part for part in parts if part.share >= LEAST_NAMED or part.style == "dim"]
    small = [part for part in shown if part.share < LEAST_APART and part.style not in ("dim", "fill-warn")]
    if len(small) > 1:
        shown = [part for part in shown if part not in small]
        style: Style = small[0].style if any(part.style == "fill-dim" for part in shown) else "fill-dim"
        rest = BarPart("other", sum(part.share for part in small), style)
        shown = sorted([*shown, rest], key=lambda part: part.style == "dim")
    bar, legend = stacked_bar(shown, max(0, width - LABEL))
    below = [*legend, *(line(remark) for remark in remarks if remark.text)]
    return [labelled_row(label, bar), *(labelled_flow("", below, width) if below else ())]


WEIGHTS, GRADIENTS, ACTIVATIONS = "weights", "gradients", "activations"
KEPT, TENSORS, CACHED, CONTEXT, OTHERS = "weights, optimizer", "tensors", "cached", "context", "other programs"
MEMORY_STYLES: Mapping[str, Style] = {
    WEIGHTS: "fill-good", KEPT: "fill-good", GRADIENTS: "fill-third", OPTIMIZER: "fill-fourth",
    ACTIVATIONS: "fill-curve", TENSORS: "fill-curve", CACHED: "fill-gauge", CONTEXT: "fill-dim", OTHERS: "fill-warn",
}  # fmt: skip


def _measured_parts(state: RunState, gpu: GpuSample, sample: Sample | None) -> dict[str, float]:
    """Return what the allocator and the driver report of the fullest GPU; empty without a peak of the allocator."""
    # Between two steps only weights, optimizer states and kept gradients are allocated: the smallest value of recent
    # steps. What a step adds at its peak are the activations; what the allocator keeps beyond that is its cache. The
    # rest of the memory of these processes is the CUDA context, and that of other processes is theirs.
    peak, ranks = peak_bytes(state), list(state.ranks.values())
    if peak is None or not gpu.memory_used_bytes:
        return {}
    fullest = max(ranks, key=lambda rank: (rank.latest and rank.latest.allocated_peak_bytes) or 0)
    minima = [value for value in fullest.allocated_minima.values if value is not None]
    kept = min(minima[-1], peak) if minima else None
    reserved = max(peak, (fullest.latest and fullest.latest.reserved_peak_bytes) or peak)
    pids = {process.pid for process in sample.processes} if sample is not None else set()
    by_us = [process.memory_bytes for process in gpu.processes or () if process.pid in pids]
    known_by_us = sum(size for size in by_us if size is not None) or gpu.memory_used_bytes
    sizes: dict[str, float] = {TENSORS: peak}
    if kept is not None:
        weights = _weight_bytes(state)
        split = {WEIGHTS: weights, OPTIMIZER: kept - weights} if weights and weights <= kept else {KEPT: kept}
        sizes = {**split, ACTIVATIONS: peak - kept}
    sizes[CACHED] = reserved - peak
    sizes[CONTEXT] = max(0.0, known_by_us - reserved)
    sizes[OTHERS] = max(0.0, gpu.memory_used_bytes - known_by_us)
    return sizes


def _weight_bytes(state: RunState) -> int | None:
    """Return the bytes of the weights of one process that trains them all in one dtype; None for any other."""
    from tuner_tui.memory.known_shapes import DTYPE_BYTES  # not needed for the first frame

    each = DTYPE_BYTES.get(str(state.in_effect.get("parameter_dtype")))
    if each is None or state.parameters is None or state.parameters != state.trainable_parameters:
        return None
    return each * state.parameters if len(state.ranks) == 1 else None
