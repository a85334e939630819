"""Remedies with a computed value (batches, workers, precision, learning rate), and the ladders that have them.

Where memory ran out decides their order: a smaller batch does nothing for an optimizer step or a model that does not
load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tuner_tui.advice.batch_scaling import (
    BatchSplit,
    divisors,
    rebalance,
    scale_learning_rate,
    scale_linear,
    scale_square_root,
    smaller_micro_batches,
)
from tuner_tui.advice.expected_memory import expected_peak
from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.findings.run_metrics import loading_is_idle
from tuner_tui.advice.remedies.table import FILE, names_of, remedy, remedy_if_it_applies
from tuner_tui.advice.situation import Situation
from tuner_tui.core.files import read_data_file
from tuner_tui.settings.model import Settings

SHORTEST_LENGTH = 32
CONSERVATIVE_BATCH = 8
LARGEST_RATE = 1.0
"""Learning rates above it diverge with every common optimizer."""
ADAM_RATE, SGD_RATE = 1e-3, 1e-2
"""Usual rates where the one in effect gives no hint; 1e-3 is the default of PyTorch's Adam."""


def smaller_micro_batch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """The largest smaller micro batch that fits and keeps the effective batch; also the nearest inexact one if far.

    One step to what fits: a batch that may still be too large would cost another start. Where no peak is known, it is
    the next smaller one.
    """
    micro, accumulation = settings.per_device_train_batch_size, settings.gradient_accumulation_steps
    if situation.has_own_loop:  # which does not accumulate: the half, or the largest power of two of it that may fit
        halves = [BatchSplit(micro >> shift, 1, situation.replicas) for shift in range(1, micro.bit_length())]
        fitting, possible = _by_fit(situation, halves)
        for split in (*fitting, *possible)[:1]:
            yield _batch_remedy("smaller-batch", situation, settings, split)
        return
    share = micro * accumulation
    sizes = smaller_micro_batches(micro, accumulation)
    splits = [BatchSplit(size, share // size, situation.replicas) for size in sizes]
    if not splits:
        return
    fitting, possible = _by_fit(situation, splits)
    split = (*fitting, *possible, splits[-1])[0]
    if split == splits[0] and 2 * split.micro < micro and _can_scale_rate(situation, settings):
        inexact = rebalance(micro, accumulation, situation.replicas, micro * 3 // 4)
        yield _batch_remedy("inexact-split", situation, settings, inexact, scales_rate=True)
    yield _batch_remedy("exact-split", situation, settings, split)


def _by_fit(situation: Situation, splits: Sequence[BatchSplit]) -> tuple[list[BatchSplit], list[BatchSplit]]:
    """Those of `splits` whose memory is known to fit, and those that may fit."""
    peaks = [(split, expected_peak(situation, split.change)) for split in splits]
    fitting = [split for split, peak in peaks if peak is not None and peak.verdict == "fits"]
    return fitting, [split for split, peak in peaks if peak is None or peak.verdict == "tight"]


def _batch_remedy(
    name: str, situation: Situation, settings: Settings, split: BatchSplit, *, scales_rate: bool = False, **texts: Any
) -> Remedy:
    """The remedy of a row that sets a batch; with `scales_rate` also the learning rate for it."""
    micro, before = settings.per_device_train_batch_size, settings.effective_batch(situation.replicas)
    ratio = split.effective / before
    rate, rule = scale_learning_rate(settings.learning_rate, ratio, settings.optim)
    change: dict[str, int | float] = {**split.change}
    if situation.has_own_loop:
        del change["gradient_accumulation_steps"]
    if scales_rate:
        change["learning_rate"] = float(f"{rate:.3g}")
    return remedy(
        name,
        change,
        micro=micro,
        wanted=split.micro,
        accumulation=settings.gradient_accumulation_steps,
        rest=split.accumulation,
        before=before,
        effective=split.effective,
        times=_times(split.micro, micro),
        rate_before=f"{settings.learning_rate:.3g}",
        rate=f"{rate:.3g}",
        rule=rule,
        root=f"{scale_square_root(settings.learning_rate, ratio):.3g}",
        linear=f"{scale_linear(settings.learning_rate, ratio):.3g}",
        **texts,
    )


def _can_scale_rate(situation: Situation, settings: Settings) -> bool:
    """Whether the settings hold the learning rate in effect: they allow none above 10, a script does."""
    given = situation.chosen is None or "learning_rate" in situation.chosen
    return given or situation.state.in_effect.get("learning_rate") in (None, settings.learning_rate)


def _times(after: int, before: int) -> str:
    """The factor, such as `× 0.75`."""
    return f"× {after / before:.2g}"


def smaller_eval_batch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """Three quarters of the evaluation batch as in the notes, or half of a small one."""
    batch = settings.per_device_eval_batch_size
    if batch > 1:
        smaller = batch * 3 // 4 if batch >= 16 else batch // 2
        change = {"per_device_eval_batch_size": smaller}
        yield remedy("smaller-eval-batch", change, before=batch, wanted=smaller, times=_times(smaller, batch))


def shorter_sequences(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """Two thirds of the sequence length, rounded down to a multiple of 8."""
    length = settings.max_length
    new = max(SHORTEST_LENGTH, length * 2 // 3 // 8 * 8)
    if new < length:
        yield remedy("shorter-sequences", {"max_length": new}, before=length, wanted=new, times=_times(new, length))


def safe_batch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """The conservative micro batch of the notes with the same effective batch, which takes a loop that accumulates."""
    micro, accumulation = settings.per_device_train_batch_size, settings.gradient_accumulation_steps
    sizes = () if situation.has_own_loop else smaller_micro_batches(micro, accumulation)
    safe = next((size for size in sizes if size <= CONSERVATIVE_BATCH), None)
    if safe is not None and safe != sizes[0]:
        split = BatchSplit(safe, micro * accumulation // safe, situation.replicas)
        yield _batch_remedy("safe-batch", situation, settings, split)


def larger_batch(situation: Situation, settings: Settings, most: int) -> Iterator[Remedy]:
    """A larger micro batch, at most `most` times: with less accumulation, else with a larger effective batch.

    Of the sizes whose memory fits it is the largest, of those that may fit the smallest. Where the GPU has very
    little to do, a larger effective batch is offered, too.
    """
    micro, accumulation = settings.per_device_train_batch_size, settings.gradient_accumulation_steps
    share = micro * accumulation
    own_loop = situation.has_own_loop  # which has no accumulation
    divided = () if own_loop else divisors(share)
    held = [BatchSplit(size, share // size, situation.replicas) for size in divided if size > micro]
    fitting, possible = _by_fit(situation, [split for split in held if split.micro <= most * micro])
    for split in fitting[-1:] or possible[:1]:
        gain = _expected_gain(split.micro / micro, most)
        yield _batch_remedy("larger-micro-batch", situation, settings, split, **gain)
    if own_loop or accumulation == 1 or most > 2:
        grown = (int(micro * times) for times in STEPS_UP if times <= most)
        # From 16 on multiples of 8, as the GPU's matrix units take them.
        sizes = dict.fromkeys(size // 8 * 8 if size >= 16 else size for size in grown)
        splits = [BatchSplit(size, 1, situation.replicas) for size in sizes if size > share]
        fitting, possible = _by_fit(situation, splits if _can_scale_rate(situation, settings) else ())
        for split in fitting[-1:] or possible[:1]:
            gain, scales = _expected_gain(split.micro / micro, most), situation.is_known("learning_rate")
            yield _batch_remedy("larger-effective-batch", situation, settings, split, scales_rate=scales, **gain)


STEPS_UP = (1.25, 1.5, 2, 3, 4)
"""Steps of the micro batch, where the effective batch grows with it: 12 → 14, 32 → 48 and × 4 in the notes."""


def _expected_gain(times: float, most: int) -> Mapping[str, Any]:
    """The gain that the notes measured with a micro batch `times` as large.

    A GPU that is offered no more than twice the batch is idle only at times: no more than the smallest gain is left.
    """
    rows: Sequence[Mapping[str, Any]] = read_data_file(FILE)["batch-gains"]
    row = rows[0] if most <= 2 else next((row for row in rows if times <= row["times"]), rows[-1])
    return {"gain": row["gain"], "speed": row["speed"], "rests_on": row["rests_on"]}


def no_checkpointing(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """Checkpointing off, only if the GPU is known to have enough memory; a step is 1/1.2 of one that computes twice."""
    change = {"gradient_checkpointing": False}
    peak = expected_peak(situation, change) if settings.gradient_checkpointing else None
    if peak is not None and peak.verdict == "fits":
        yield remedy("no-checkpointing", change)


MAX_WORKERS = 16
FEW_SUFFICE = 0.5
"""Share of the wait up to which two more workers are enough; judgement."""
LEAST_GAIN = 1.05
"""A remedy that cannot gain as much is not offered: it would say "about 1×"."""
BIG_GAIN = 2.0


def more_workers(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """The power of two that the wait needs (2 → 16), at least two more, or four from none; at most one per core.

    Where loading itself waits they need no core. Up to half of the time two more are tried, as the notes do. Of a
    stream that does not divide itself every worker delivers all samples, so that there may be only one.
    """
    workers, cores = settings.dataloader_num_workers, situation.usable_cores
    spare = max(1, (cores - 1) if cores is not None else workers + 2) // situation.processes
    most = 1 if situation.state.in_effect.get("workers_repeat") else MAX_WORKERS
    # What computes leaves 1 - share of a step; the workers have to deliver a batch in that time. A power of two is the
    # same number when the share is measured again, later or over the whole run.
    idle, share = loading_is_idle(situation, workers), min(0.99, situation.state.rates.data_wait_share or 0.0)
    needed = 1 << math.ceil(math.log2(round((workers or share) / (1 - share), 3))) if share > FEW_SUFFICE else 0
    wanted = min(max(needed, workers + 2 if workers else 4), most if idle else min(most, max(1, spare)))
    if wanted <= workers:
        return
    crowded = wanted > (cores or wanted)
    change: dict[str, int | bool] = {"dataloader_num_workers": wanted}
    if workers == 0:
        change["dataloader_persistent_workers"] = True
    gain = possible_gain(situation.state.rates.data_wait_share, workers, wanted)
    if gain is not None and gain < LEAST_GAIN:
        return
    why = "batches are prepared while the training computes" if workers == 0 else "more batches are prepared at once"
    why += f"; about {needed} would be needed to keep up with it" * (needed > wanted)
    yield remedy(
        "more-workers",
        change,
        workers=workers,
        wanted=wanted,
        why=f"{why}{'; loading waits rather than computes, so workers need no cores of their own' * idle}"
        f"{'; PyTorch warns about more workers than cores, which only matters to workers that compute' * crowded}",
        effect="" if gain is None else f"up to about {_rounded(gain):g}× the steps per second",
        rests_on="" if gain is None else "from the share of time spent waiting for data",
        speed=None if gain is None else (1.0, gain),
    )


def _rounded(gain: float) -> float:
    """A gain as it does not change with each second: to a tenth, from 2 on to a half."""
    return round(gain, 1) if gain < BIG_GAIN else round(2 * gain) / 2


def fewer_workers(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """A third fewer workers (6 → 4); at most one per core."""
    workers, cores = settings.dataloader_num_workers, situation.usable_cores
    most = workers if cores is None else max(1, cores - 1)
    wanted = min(most, max(1, workers * 2 // 3))
    if wanted < workers:
        yield remedy("fewer-workers", {"dataloader_num_workers": wanted}, workers=workers, wanted=wanted)


def possible_gain(share: float | None, workers: int, wanted: int) -> float | None:
    """The upper bound of the speed-up by more workers, None if the share of the wait is unknown.

    A step takes as long as the slower of computing and loading. Without workers, loading is the wait itself; with
    workers that are waited for, it takes the whole step.
    """
    if not share:
        return None
    loading = workers / wanted if workers else share / wanted
    return 1 / max(1 - share, loading)


def wider_precision(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """bf16 if supported, else fp32, in place of fp16."""
    if settings.precision == "fp16":
        wanted = "bf16" if situation.supports("bf16") else "fp32"
        cost = "the same speed" if wanted == "bf16" else "slower, more memory"
        yield remedy("wider-precision", {"precision": wanted}, wanted=wanted, cost=cost)


def lower_learning_rate(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """Half the rate in effect, which may be one that the settings do not allow; a usual one in place of that."""
    in_effect = situation.state.in_effect.get("learning_rate")
    given = situation.chosen is None or "learning_rate" in situation.chosen
    rate = settings.learning_rate if given or not isinstance(in_effect, int | float) else float(in_effect)
    lower = float(f"{rate / 2:.3g}")
    if rate > LARGEST_RATE:
        lower = ADAM_RATE if "adam" in str(situation.state.in_effect.get("optimizer", "")).lower() else SGD_RATE
    yield remedy("lower-learning-rate", {"learning_rate": lower}, rate=f"{rate:.3g}", wanted=f"{lower:.3g}")


RUNGS: Mapping[str, Callable[[Situation, Settings], Iterator[Remedy]]] = {
    "more-workers": more_workers,
    "fewer-workers": fewer_workers,
    "wider-precision": wider_precision,
    "lower-learning-rate": lower_learning_rate,
    "much-larger-batch": partial(larger_batch, most=4),  # the GPU idles half of the time
    "larger-batch": partial(larger_batch, most=2),
    "no-checkpointing": no_checkpointing,
    "smaller-micro-batch": smaller_micro_batch,
    "smaller-eval-batch": smaller_eval_batch,
    "shorter-sequences": shorter_sequences,
    "safe-batch": safe_batch,
}


def climb(
    name: str, situation: Situation, where: str | None = None, role: str | None = None, **values: object
) -> tuple[Remedy, ...]:
    """The remedies of a ladder, or of one name, computed or by their rows, that apply; computed ones need settings."""
    remedies: list[Remedy] = []
    for rung in names_of(name, situation, where, role):
        if rung not in RUNGS:
            remedies += filter(None, [remedy_if_it_applies(rung, situation, where, **values)])
        elif situation.settings is not None:
            remedies += RUNGS[rung](situation, situation.settings)
    return tuple(remedies)
