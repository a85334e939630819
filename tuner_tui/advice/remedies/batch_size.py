"""Remedies that change the batch: smaller ones where memory is full, larger ones where the GPU has room or idles.

Where memory ran out decides the order: a smaller batch does nothing for an optimizer step or a model that does not
load.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tuner_tui.advice.batch_scaling import (
    BatchSplit,
    RebalancedBatch,
    divisors,
    rebalance,
    scale_learning_rate,
    scale_linear,
    scale_square_root,
    smaller_micro_batches,
)
from tuner_tui.advice.expected_memory import expected_peak
from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies.table import remedy
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
    if largest == sizes[0] and 2 * largest < micro and _can_scale_rate(situation, settings):
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


def _can_scale_rate(situation: Situation, settings: Settings) -> bool:
    """Whether the settings hold the learning rate in effect: they allow none above 10, a script does."""
    given = situation.chosen is None or "learning_rate" in situation.chosen
    return given or situation.state.in_effect.get("learning_rate") in (None, settings.learning_rate)


def _times(after: int, before: int) -> str:
    """The factor `× 0.75`, or `÷ 64` where that would round to nothing."""
    return f"× {after / before:.2f}" if 10 * after > before else f"÷ {before / after:.3g}"


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


def much_larger_batch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """For a GPU that is idle half of the time, or with an idle CPU."""
    return _larger_batch(situation, settings, most=4)


def larger_batch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    return _larger_batch(situation, settings, most=2)


def _larger_batch(situation: Situation, settings: Settings, most: int) -> Iterator[Remedy]:
    """A larger micro batch, at most `most` times: with less accumulation, else with a larger effective batch.

    Of the sizes whose memory fits it is the largest, of those that may not fit the smallest. Where the GPU has very
    little to do, a larger effective batch is offered, too.
    """
    micro, accumulation = settings.per_device_train_batch_size, settings.gradient_accumulation_steps
    share = micro * accumulation
    own_loop = situation.has_own_loop  # which has no accumulation
    divided = () if own_loop else divisors(share)
    held = [BatchSplit(size, share // size, situation.replicas) for size in divided if size > micro]
    split = _largest_that_fits(situation, [split for split in held if split.micro <= most * micro])
    if split is not None:
        yield remedy(
            "larger-micro-batch",
            split.change,
            micro=micro,
            wanted=split.micro,
            accumulation=accumulation,
            rest=split.accumulation,
            effective=split.effective,
            times=f"{split.micro / micro:.2f}",
        )
    if own_loop or accumulation == 1 or most > 2:
        sizes = dict.fromkeys(_round_batch(micro * times) for times in STEPS_UP if times <= most)
        split = _largest_that_fits(situation, [BatchSplit(n, 1, situation.replicas) for n in sizes if n > share])
        if split is not None and _can_scale_rate(situation, settings):
            yield _grown_batch(situation, settings, split)


STEPS_UP = (1.25, 1.5, 2, 3, 4)
"""Steps of the micro batch, where the effective batch grows with it: 12 → 14, 32 → 48 and × 4 in the notes."""


def _round_batch(size: float) -> int:
    """Down to a multiple of 8 from 16 on, as the GPU's matrix units take them."""
    return int(size) // 8 * 8 if size >= 16 else int(size)


def _largest_that_fits(situation: Situation, splits: Sequence[BatchSplit]) -> BatchSplit | None:
    """The largest of `splits`, ascending, whose memory fits; else the smallest, if it is not known to be too large."""
    peaks = [(split, expected_peak(situation, split.change)) for split in splits]
    fitting = [split for split, peak in peaks if peak is not None and peak.verdict == "fits"]
    open_ones = [split for split, peak in peaks if peak is None or peak.verdict == "tight"]
    return fitting[-1] if fitting else next(iter(open_ones), None)


def _grown_batch(situation: Situation, settings: Settings, split: BatchSplit) -> Remedy:
    """A larger micro batch with the larger effective batch and its learning rate."""
    before = settings.effective_batch(situation.replicas)
    ratio = split.effective / before
    rate, rule = scale_learning_rate(settings.learning_rate, ratio, settings.optim)
    rate = float(f"{rate:.3g}")
    change: dict[str, int | float] = {**split.change}
    if situation.has_own_loop:
        del change["gradient_accumulation_steps"]
    if situation.is_known("learning_rate"):
        change["learning_rate"] = rate
    micro = settings.per_device_train_batch_size
    return remedy(
        "larger-effective-batch",
        change,
        micro=micro,
        wanted=split.micro,
        before=before,
        effective=split.effective,
        rate_before=f"{settings.learning_rate:.3g}",
        rate=f"{rate:.3g}",
        rule=rule,
        root=f"{scale_square_root(settings.learning_rate, ratio):.3g}",
        linear=f"{scale_linear(settings.learning_rate, ratio):.3g}",
        times=f"{split.micro / micro:.2f}",
    )


def no_checkpointing(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """Checkpointing off, only if the GPU is known to have enough memory; a step is 1/1.2 of one that computes twice."""
    change = {"gradient_checkpointing": False}
    peak = expected_peak(situation, change) if settings.gradient_checkpointing else None
    if peak is not None and peak.verdict == "fits":
        yield remedy("no-checkpointing", change)
