"""Remedies for a GPU that is underused or slow: larger batches, 16 bits, no checkpointing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner_tui.advice.batch_scaling import BatchSplit, divisors, scale_learning_rate, scale_linear, scale_square_root
from tuner_tui.advice.expected_memory import expected_peak
from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies.table import remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.settings.model import Settings


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
        if split is not None:
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


def sixteen_bits(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    wanted = situation.best_precision
    if settings.precision == "fp32" and wanted != "fp32":
        yield remedy("sixteen-bits", {"precision": wanted}, wanted=wanted)


def no_checkpointing(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """Checkpointing off, only if the GPU is known to have enough memory; a step is 1/1.2 of one that computes twice."""
    change = {"gradient_checkpointing": False}
    peak = expected_peak(situation, change) if settings.gradient_checkpointing else None
    if peak is not None and peak.verdict == "fits":
        yield remedy("no-checkpointing", change)
