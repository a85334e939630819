"""Remedies whose new value is computed: loader workers, precision, learning rate."""

from __future__ import annotations

from collections.abc import Iterator

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies.table import remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.settings.model import Settings

MAX_WORKERS = 16
LEAST_GAIN = 1.02
"""A remedy that cannot gain as much is not offered."""


def more_workers(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """Two more workers (4 → 6), or up to four from none; at most one per core.

    Of a stream that does not divide itself every worker delivers all samples, so that there may be only one.
    """
    workers, cores = settings.dataloader_num_workers, situation.usable_cores
    spare = max(1, (cores - 1) if cores is not None else workers + 2) // situation.processes
    most = 1 if situation.state.in_effect.get("workers_repeat") else MAX_WORKERS
    wanted = min(workers + 2 if workers else 4, max(1, spare), most)
    if wanted <= workers:
        return
    change: dict[str, int | bool] = {"dataloader_num_workers": wanted}
    if workers == 0:
        change["dataloader_persistent_workers"] = True
    gain = possible_gain(situation.state.rates.data_wait_share, workers, wanted)
    if gain is not None and gain < LEAST_GAIN:
        return
    yield remedy(
        "more-workers",
        change,
        workers=workers,
        wanted=wanted,
        why="batches are prepared while the GPU computes" if workers == 0 else "more batches are prepared at once",
        effect="" if gain is None else f"at most {gain:.3g}× the steps per second",
        rests_on="" if gain is None else "the measured wait bounds the gain",
    )


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


LARGEST_RATE = 1.0
"""Learning rates above it diverge with every common optimizer."""
ADAM_RATE, SGD_RATE = 1e-3, 1e-2
"""Usual rates where the one in effect gives no hint; 1e-3 is the default of PyTorch's Adam."""


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
