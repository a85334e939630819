"""What to do when the card's memory is full, in order of least harm.

Gradient checkpointing is only ever switched on here: switching it off, as one of the notes says, costs memory.
Where the memory ran out decides the order: a smaller batch does nothing for an optimizer step or a model that does
not load.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tuner_tui.advice.batch_scaling import (
    BatchSplit,
    RebalancedBatch,
    rebalance,
    scale_learning_rate,
    smaller_micro_batches,
)
from tuner_tui.advice.expected_memory import expected_peak
from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies.table import remedy, runs_bitsandbytes
from tuner_tui.advice.situation import Situation
from tuner_tui.settings.model import Settings

SHORTEST_LENGTH = 32
CONSERVATIVE_BATCH = 8


ADAPTERS_IN_LOG = re.compile(r"trainable%|\bpeft[/.]|\bqlora\b|\blora_[AB]\b|PeftModel", re.IGNORECASE)


def log_shows_adapters(situation: Situation) -> bool:
    """Whether the log shows that adapters are trained already: peft prints their share, a traceback names its files."""
    return any(ADAPTERS_IN_LOG.search(line) for line in situation.log)


def smaller_micro_batch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """The largest smaller micro batch that fits and keeps the effective batch; also the nearest inexact one if far.

    One step to what fits: a batch that may still be too large would cost another start. Where no peak is known, it is
    the next smaller one.
    """
    micro, accumulation = settings.per_device_train_batch_size, settings.gradient_accumulation_steps
    if situation.has_own_loop:
        yield from _smaller_batch(situation, settings)
        return
    sizes = smaller_micro_batches(micro, accumulation)
    if not sizes:
        return
    largest = _largest_fitting(situation, settings, sizes) or sizes[-1]
    if largest == sizes[0] and 2 * largest < micro:
        yield _inexact_split(rebalance(micro, accumulation, situation.replicas, micro * 3 // 4), settings)
    yield _exact_split(BatchSplit(largest, micro * accumulation // largest, situation.replicas), settings)


def _largest_fitting(situation: Situation, settings: Settings, sizes: Sequence[int]) -> int | None:
    """The first of `sizes` that is known to fit, else the first that may fit; None if all are too large."""
    share = settings.per_device_train_batch_size * settings.gradient_accumulation_steps
    possible = None
    for size in sizes:
        peak = expected_peak(situation, BatchSplit(size, max(1, share // size), situation.replicas).change)
        if peak is not None and peak.verdict == "fits":
            return size
        if peak is None or peak.verdict == "tight":
            possible = possible or size
    return possible


def _smaller_batch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """For a loop without accumulation: the half, or the largest power of two of it that may fit."""
    batch = settings.per_device_train_batch_size
    halves = [batch >> shift for shift in range(1, batch.bit_length())]
    smaller = _largest_fitting(situation, settings, halves)
    if smaller is not None:
        yield remedy(
            "smaller-batch",
            {"per_device_train_batch_size": smaller},
            batch=batch,
            wanted=smaller,
            times=_times(smaller, batch),
        )


def _exact_split(split: BatchSplit, settings: Settings) -> Remedy:
    return remedy(
        "exact-split",
        split.change,
        micro=settings.per_device_train_batch_size,
        wanted=split.micro,
        accumulation=settings.gradient_accumulation_steps,
        rest=split.accumulation,
        effective=split.effective,
        times=_times(split.micro, settings.per_device_train_batch_size),
    )


def _inexact_split(new: RebalancedBatch, settings: Settings) -> Remedy:
    rate, rule = scale_learning_rate(settings.learning_rate, new.ratio, settings.optim)
    rate = float(f"{rate:.3g}")
    return remedy(
        "inexact-split",
        {**new.split.change, "learning_rate": rate},
        before=settings.per_device_train_batch_size,
        micro=new.split.micro,
        wanted=new.wanted,
        effective=new.split.effective,
        rate=f"{rate:.3g}",
        rule=rule,
        times=_times(new.split.micro, settings.per_device_train_batch_size),
    )


def _times(after: int, before: int) -> str:
    """The factor `× 0.75`, or `÷ 64` where that would round to nothing."""
    return f"× {after / before:.2f}" if 10 * after > before else f"÷ {before / after:.3g}"


def mixed_precision(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    wanted = situation.best_precision
    if settings.precision == "fp32" and wanted != "fp32":
        yield remedy("mixed-precision", {"precision": wanted}, wanted=wanted)


def smaller_eval_batch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """Three quarters of the evaluation batch as in the notes, or half of a small one."""
    batch = settings.per_device_eval_batch_size
    if batch > 1:
        smaller = batch * 3 // 4 if batch >= 16 else batch // 2
        change = {"per_device_eval_batch_size": smaller}
        yield remedy("smaller-eval-batch", change, before=batch, wanted=smaller, times=f"{smaller / batch:.2f}")


def shorter_sequences(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """Two thirds of the sequence length, rounded down to a multiple of 8."""
    length = settings.max_length
    new = max(SHORTEST_LENGTH, length * 2 // 3 // 8 * 8)
    if new < length:
        times = f"{new / length:.2f}"
        yield remedy("shorter-sequences", {"max_length": new}, before=length, wanted=new, times=times)


def eight_bit_optimizer(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """8-bit AdamW for a training of all weights."""
    if settings.optim not in {"adamw_torch", "adamw_torch_fused"} or settings.peft_method != "none":
        return
    if runs_bitsandbytes(situation):
        parameters = situation.state.trainable_parameters
        saved = "6 bytes per parameter" if parameters is None else f"{parameters * 6 / 1e9:.1f} GB"
        yield remedy("eight-bit-optimizer", optim=settings.optim, saved=saved)


def safe_batch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """The conservative micro batch of the notes with the same effective batch."""
    micro, accumulation = settings.per_device_train_batch_size, settings.gradient_accumulation_steps
    sizes = smaller_micro_batches(micro, accumulation)
    safe = next((size for size in sizes if size <= CONSERVATIVE_BATCH), None)
    if safe is not None and safe != sizes[0]:
        split = BatchSplit(safe, micro * accumulation // safe, situation.replicas)
        yield remedy(
            "safe-batch",
            split.change,
            micro=split.micro,
            accumulation=split.accumulation,
            effective=split.effective,
            times=_times(split.micro, micro),
        )
