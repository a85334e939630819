"""The changes of one knob other than the micro batch, each with the most it can gain.

The bounds follow from where the time of a step goes, and from the largest factor known for each change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

from tuner_tui.advice.recommend.notes import fill_in
from tuner_tui.core.files import read_data_file
from tuner_tui.settings.model import Settings, Value, format_value
from tuner_tui.tuning.search.results import SAFE_MEMORY_SHARE, SettingsResult
from tuner_tui.tuning.search.space import PERSISTENT, PIN, PREFETCH, WORKERS, SearchSpace
from tuner_tui.tuning.trial import StepBreakdown

FILE = Path(__file__).with_name("factors.yaml")
ATTENTION_KERNELS = ("sdpa-over-eager", "flash_attention_2", "flash_attention_3")
"""Those whose factor is known."""
SAMPLING = "train_sampling_strategy"
COMPUTE = ("precision", "tf32", "attn_implementation", "torch_compile", SAMPLING)
"""Knobs that shorten forward and backward."""
WORKER_MARGIN = 1.25
"""Safety factor on the loading time when the number of workers is computed."""


class Factor(Struct, frozen=True):
    """A factor with its unit and its source."""

    value: float
    unit: str
    source: str


@cache
def factor(name: str) -> Factor:
    """The largest factor known for a change, a row of `factors.yaml`."""
    row = read_data_file(FILE)[name]
    return Factor(row["value"], row["unit"], fill_in(row["source"]))


def gain_without(share: float | None) -> float | None:
    """Return the gain if this share of a step's time vanished, or None if the share is unknown."""
    return None if share is None else 1 / (1 - min(max(share, 0.0), 0.99)) - 1


def compute_share(breakdown: StepBreakdown) -> float:
    """Return the share of a step in forward and backward: what is neither data wait nor optimizer step."""
    return max(0.0, 1 - (breakdown.data_wait or 0.0) - (breakdown.optimizer or 0.0))


def compute_bound(breakdown: StepBreakdown, factor: Factor) -> float | None:
    """Bound of a change that computes forward and backward `factor` times as fast."""
    return gain_without(compute_share(breakdown) * (1 - 1 / factor.value))


class KnobChange(Struct, frozen=True):
    """A change of one knob away from the best settings.

    Attributes:
        knob: The field that changes.
        values: New values of the knob and of the fields that change with it.
        bound: Maximum gain in throughput, as a share; None if unknown.
        reason: What the bound is based on.
        from_other: Derived from settings other than the best. Such a change is not reported if it is skipped.
    """

    knob: str
    values: Mapping[str, Value]
    bound: float | None
    reason: str
    from_other: bool = False

    @property
    def value(self) -> str:
        """The knob's new value as text."""
        return format_value(self.knob, self.values[self.knob])


def knob_changes(best: SettingsResult, space: SearchSpace) -> Iterator[KnobChange]:
    """Yield every change of one knob away from the best settings, whatever its bound."""
    now, parts = best.settings, best.breakdown
    if now.precision == "fp32":  # never back, and never from one 16-bit type to the other
        on_gpu = "sixteen-bit-after-tf32" if now.tf32 else "sixteen-bit"
        for value in other_values("precision", now, space):
            yield _compute_change("precision", value, parts, on_gpu if space.on_gpu else "sixteen-bit-on-cpu")
        if True in other_values("tf32", now, space):  # under autocast, matrix products are in 16 bit already
            yield _compute_change("tf32", True, parts, "tf32")
    for value in other_values("attn_implementation", now, space):
        kernel = "sdpa-over-eager" if now.attn_implementation == "eager" else str(value)
        if kernel in ATTENTION_KERNELS:
            yield _compute_change("attn_implementation", value, parts, kernel)
    if True in other_values("torch_compile", now, space):
        yield _compute_change("torch_compile", True, parts, "compile")
    peak, limit = best.peak_bytes, space.limit_bytes
    is_full = peak is not None and limit is not None and peak > SAFE_MEMORY_SHARE * limit
    if not is_full and False in other_values("torch_compile", now, space):  # which may take more memory
        slower = factor("without-compiling")
        yield KnobChange("torch_compile", {"torch_compile": False}, slower.value, slower.source)
    # Another optimizer than the same with fused kernels would change the result of the training.
    if now.optim == "adamw_torch" and "adamw_torch_fused" in other_values("optim", now, space):
        bound = gain_without(parts.optimizer)
        yield KnobChange("optim", {"optim": "adamw_torch_fused"}, bound, "the optimizer's share of the step")
    if (grouped := sampling_change(now, parts, space)) is not None:
        yield grouped
    yield from loader_changes(now, parts, space)


def sampling_change(now: Settings, breakdown: StepBreakdown, space: SearchSpace) -> KnobChange | None:
    """Batches of samples of similar lengths, which are padded less; None if they are or cannot be."""
    if "group_by_length" not in other_values(SAMPLING, now, space):
        return None
    padding = breakdown.padding
    bound = None if padding is None else gain_without(padding * compute_share(breakdown))
    return KnobChange(SAMPLING, {SAMPLING: "group_by_length"}, bound, "the share of padding")


def loader_changes(now: Settings, breakdown: StepBreakdown, space: SearchSpace) -> Iterator[KnobChange]:
    """As many workers as the data wait calls for, then prefetching, persistent workers and pinned memory."""
    wait, reason = gain_without(breakdown.data_wait), "the wait for data"
    for count in _more_workers(now, breakdown, space):
        yield KnobChange(WORKERS, with_workers(count, now, space), wait, reason)
    if now.dataloader_num_workers > 0:
        for value in other_values(PREFETCH, now, space):
            if isinstance(value, int) and value > prefetched(now):
                yield KnobChange(PREFETCH, {PREFETCH: value}, wait, reason)
                break
        if True in other_values(PERSISTENT, now, space):
            yield KnobChange(PERSISTENT, {PERSISTENT: True}, wait, reason)
    if True in other_values(PIN, now, space):
        yield KnobChange(PIN, {PIN: True}, wait, reason)
    # Workers and training compete for cores without a GPU, or when there is a worker for every core.
    smaller = [count for count in _counts(now, space) if count < now.dataloader_num_workers]
    crowded = space.cores is not None and now.dataloader_num_workers >= space.cores
    for count in sorted({*smaller[-1:], *smaller[:1]}) if crowded or not space.on_gpu else ():
        change = with_workers(count, now, space)
        yield KnobChange(WORKERS, change, factor("fewer-workers").value, "workers use cores of the training process")


def _more_workers(now: Settings, breakdown: StepBreakdown, space: SearchSpace) -> tuple[int, ...]:
    larger = [count for count in _counts(now, space) if count > now.dataloader_num_workers]
    wait = breakdown.data_wait
    if not larger or wait is None:
        return tuple(larger[:1])
    # The fewest workers that hide the loading behind the computing. Without workers, the wait is the loading itself;
    # n workers that still leave a wait spend the whole step loading.
    loading = wait if now.dataloader_num_workers == 0 else float(now.dataloader_num_workers)
    needed = math.ceil(WORKER_MARGIN * loading / max(1 - wait, 0.01))
    enough = [count for count in larger if count >= needed]
    return tuple(enough[:1]) or (larger[-1],)


def _counts(now: Settings, space: SearchSpace) -> list[int]:
    return sorted(value for value in other_values(WORKERS, now, space) if isinstance(value, int))


def prefetched(settings: Settings) -> int:
    """The batches that each worker loads ahead."""
    return settings.dataloader_prefetch_factor or 2  # PyTorch's default


def with_workers(count: int, now: Settings, space: SearchSpace) -> dict[str, Value]:
    """The fields of `count` workers: none cannot prefetch or persist, others stay between epochs where they can."""
    change: dict[str, Value] = {WORKERS: count}
    if count == 0:
        return {**change, PREFETCH: None, PERSISTENT: False}
    if True in other_values(PERSISTENT, now, space):
        change[PERSISTENT] = True
    return change


def other_values(name: str, now: Settings, space: SearchSpace) -> list[Value]:
    """The values of a knob that can run here, without the present one."""
    present = getattr(now, name)
    return [value for value in space.candidates.get(name, ()) if value != present]


def _compute_change(knob: str, value: Value, parts: StepBreakdown, name: str) -> KnobChange:
    most = factor(name)
    reason = f"computing, {most.value:.3g} {most.unit} at best ({most.source})"
    return KnobChange(knob, {knob: value}, compute_bound(parts, most), reason)
