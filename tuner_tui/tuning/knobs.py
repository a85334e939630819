"""The knobs beside the micro batch: from the best settings so far, which change could help, and how much at most."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tuner_tui.advice.thresholds import Threshold
from tuner_tui.settings.fields import Value, format_value
from tuner_tui.settings.model import Settings
from tuner_tui.tuning import bounds
from tuner_tui.tuning.measurement import Breakdown
from tuner_tui.tuning.objective import Result
from tuner_tui.tuning.space import SearchSpace

WORKERS, PREFETCH = "dataloader_num_workers", "dataloader_prefetch_factor"
PIN, PERSISTENT = "dataloader_pin_memory", "dataloader_persistent_workers"
CHECKPOINTING = "gradient_checkpointing"
SPARE = 1.25
"""Workers are counted for samples that take this much longer than they did."""


@dataclass(frozen=True, slots=True)
class Option:
    """One change of one knob. `change` may take other fields along that the knob needs.

    `bound` is the most it can gain as a share of throughput, None where nothing was seen that says; `rests_on` says in
    words what the bound is from. `aside` marks one beside other settings than the best: nobody misses it where it is
    not tried.
    """

    knob: str
    change: Mapping[str, Value]
    bound: float | None
    rests_on: str
    aside: bool = False

    @property
    def value(self) -> str:
        """The knob's new value, as a person types it."""
        return format_value(self.knob, self.change[self.knob])


def options(best: Result, space: SearchSpace) -> Iterator[Option]:
    """Every change of one knob away from the best settings, whatever its bound."""
    for knob in KNOBS:
        yield from knob(best.settings, best.breakdown, space)


def precision(now: Settings, breakdown: Breakdown, space: SearchSpace) -> Iterator[Option]:
    """16 bit in place of fp32; never back, and never from one 16-bit kind to the other."""
    for value in _others("precision", now, space):
        if now.precision == "fp32" and value != "fp32":
            factor = bounds.SIXTEEN_BIT_AFTER_TF32 if now.tf32 else bounds.SIXTEEN_BIT
            factor = factor if space.on_gpu else bounds.SIXTEEN_BIT_ON_CPU
            yield _computing("precision", {"precision": value}, breakdown, factor)


def tf32(now: Settings, breakdown: Breakdown, space: SearchSpace) -> Iterator[Option]:
    """TF32, where products are still in fp32: under autocast they are in 16 bit."""
    for value in _others("tf32", now, space):
        if value and now.precision == "fp32":
            yield _computing("tf32", {"tf32": True}, breakdown, bounds.TF32)


def attention(now: Settings, breakdown: Breakdown, space: SearchSpace) -> Iterator[Option]:
    """A faster kernel for attention."""
    for value in _others("attn_implementation", now, space):
        factor = {
            "sdpa": bounds.SDPA_OVER_EAGER,
            "flash_attention_2": bounds.FLASH_OVER_SDPA,
            "flash_attention_3": bounds.FLASH_3_OVER_SDPA,
        }.get(str(value))
        if factor is None or (value == "sdpa" and now.attn_implementation != "eager"):
            continue
        factor = bounds.SDPA_OVER_EAGER if now.attn_implementation == "eager" else factor
        yield _computing("attn_implementation", {"attn_implementation": value}, breakdown, factor)


def compilation(now: Settings, breakdown: Breakdown, space: SearchSpace) -> Iterator[Option]:
    """`torch.compile`."""
    for value in _others("torch_compile", now, space):
        if value:
            yield _computing("torch_compile", {"torch_compile": True}, breakdown, bounds.COMPILE)


def optimizer(now: Settings, breakdown: Breakdown, space: SearchSpace) -> Iterator[Option]:
    """The fused kernels of the same optimizer: another one would be another training."""
    for value in _others("optim", now, space):
        if value == "adamw_torch_fused" and now.optim == "adamw_torch":
            yield Option("optim", {"optim": value}, bounds.stepping(breakdown), "the optimizer's share of a step")


def sampling(now: Settings, breakdown: Breakdown, space: SearchSpace) -> Iterator[Option]:
    """Samples of like length together."""
    for value in _others("train_sampling_strategy", now, space):
        if value == "group_by_length":
            change = {"train_sampling_strategy": value}
            yield Option("train_sampling_strategy", change, bounds.padding(breakdown), "the share of padding")


def loader(now: Settings, breakdown: Breakdown, space: SearchSpace) -> Iterator[Option]:
    """Workers as many as the wait asks for, then what they keep ready, then pinned memory."""
    wait, rests_on = bounds.waiting(breakdown), "the wait for data"
    for count in _more_workers(now, breakdown, space):
        yield Option(WORKERS, _with_workers(count, now, space), wait, rests_on)
    if now.dataloader_num_workers > 0:
        ready = now.dataloader_prefetch_factor or 2
        for value in _others(PREFETCH, now, space):
            if isinstance(value, int) and value > ready:
                yield Option(PREFETCH, {PREFETCH: value}, wait, rests_on)
                break
        if not now.dataloader_persistent_workers and True in _others(PERSISTENT, now, space):
            yield Option(PERSISTENT, {PERSISTENT: True}, wait, rests_on)
    if not now.dataloader_pin_memory and True in _others(PIN, now, space):
        yield Option(PIN, {PIN: True}, wait, rests_on)
    yield from _fewer_workers(now, space)


def _more_workers(now: Settings, breakdown: Breakdown, space: SearchSpace) -> tuple[int, ...]:
    """The count that would hide the loading behind the computing, and the one above.

    With no worker the wait is the loading itself; with n of them it is what n could not hide.
    """
    larger = [count for count in _counts(now, space) if count > now.dataloader_num_workers]
    wait = breakdown.data_wait
    if not larger or wait is None:
        return tuple(larger[:1])
    loading = wait if now.dataloader_num_workers == 0 else float(now.dataloader_num_workers)
    needed = math.ceil(SPARE * loading / max(1 - wait, 0.01))
    enough = [count for count in larger if count >= needed]
    return tuple(enough[:1]) or (larger[-1],)


def _fewer_workers(now: Settings, space: SearchSpace) -> Iterator[Option]:
    """Where workers and training want the same cores: without a GPU, or with no core left for the training."""
    smaller = [count for count in _counts(now, space) if count < now.dataloader_num_workers]
    crowded = space.cores is not None and now.dataloader_num_workers >= space.cores
    if smaller and (crowded or not space.on_gpu):
        change = _with_workers(smaller[-1], now, space)
        yield Option(WORKERS, change, bounds.FEWER_WORKERS.value, "the cores that workers take from the training")


def _counts(now: Settings, space: SearchSpace) -> list[int]:
    return sorted(value for value in _others(WORKERS, now, space) if isinstance(value, int))


def _with_workers(count: int, now: Settings, space: SearchSpace) -> dict[str, Value]:
    """Workers and what goes with them: none keep nothing ready, some are kept between epochs."""
    change: dict[str, Value] = {WORKERS: count}
    if count == 0:
        return {**change, PREFETCH: None, PERSISTENT: False}
    if not now.dataloader_persistent_workers and True in _others(PERSISTENT, now, space):
        change[PERSISTENT] = True
    return change


def _others(name: str, now: Settings, space: SearchSpace) -> list[Value]:
    """The values of a knob that can run here, without the present one."""
    present = getattr(now, name)
    return [value for value in space.candidates.get(name, ()) if value != present]


def _computing(knob: str, change: Mapping[str, Value], breakdown: Breakdown, factor: Threshold) -> Option:
    rests_on = f"computing, {factor.value:.3g} {factor.unit} at best ({factor.source})"
    return Option(knob, change, bounds.faster_compute(breakdown, factor), rests_on)


KNOBS: tuple[Callable[[Settings, Breakdown, SearchSpace], Iterator[Option]], ...] = (
    precision, tf32, attention, compilation, optimizer, sampling, loader,
)  # fmt: skip
