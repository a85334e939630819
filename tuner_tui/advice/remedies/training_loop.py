"""Remedies for the training itself: non-finite values, evaluation, padding, accumulation."""

from __future__ import annotations

from collections.abc import Iterator

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies.table import remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_share
from tuner_tui.settings.model import Settings

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


def larger_eval_batch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    batch, wanted = settings.per_device_eval_batch_size, 2 * settings.per_device_train_batch_size
    if batch < wanted:
        yield remedy("larger-eval-batch", {"per_device_eval_batch_size": wanted}, before=batch, wanted=wanted)


def rarer_evaluation(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    if settings.eval_strategy == "steps" and settings.eval_steps:
        steps = settings.eval_steps * 2
        yield remedy("rarer-evaluation", {"eval_steps": steps}, before=settings.eval_steps, wanted=steps)


def padding(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    part = situation.state.rates.padding_share
    effect = "" if part is None else f"saves at most {format_share(part)} of the computation"
    return (remedy("group-by-length", effect=effect), remedy("packing"))


def no_accumulation(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    micro, times = settings.per_device_train_batch_size, settings.gradient_accumulation_steps
    if times > 1:
        change = {"per_device_train_batch_size": micro * times, "gradient_accumulation_steps": 1}
        yield remedy("no-accumulation", change, micro=micro, wanted=micro * times, times=times)
