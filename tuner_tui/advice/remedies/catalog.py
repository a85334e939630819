"""The remedies for each cause, least harmful first, filtered by what the run supports and already has set."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies import data_loading, gpu, host, out_of_memory, training_loop, unsupported_features
from tuner_tui.advice.situation import Situation

Ladder = Callable[[Situation, str | None], tuple[Remedy, ...]]

RELATIVE_FIELDS = frozenset({
    "per_device_train_batch_size", "gradient_accumulation_steps", "per_device_eval_batch_size", "max_length",
    "learning_rate", "eval_steps", "save_steps",
})  # fmt: skip
"""Settings whose new value is computed from the old one."""
LADDERS: Mapping[str, Ladder] = {
    "gpu-oom": out_of_memory.ladder,
    "gpu-memory-near-limit": out_of_memory.ladder,
    **host.LADDERS,
    **data_loading.LADDERS,
    **gpu.LADDERS,
    **unsupported_features.LADDERS,
    **training_loop.LADDERS,
}


def remedies_for(cause: str, situation: Situation, where: str | None = None) -> tuple[Remedy, ...]:
    """The applicable remedies for `cause` at `where`, least harmful first; empty for an unknown cause."""
    ladder = LADDERS.get(cause)
    if ladder is None:
        return ()
    fitting = (
        r
        for r in ladder(situation, where)
        if changes_something(r, situation) and starts_from_known_values(r, situation)
    )
    return tuple(fitting)


def starts_from_known_values(remedy: Remedy, situation: Situation) -> bool:
    """Whether the remedy is computed from the training's own values, not from defaults that a command may not use."""
    return all(situation.is_known(name) for name in remedy.change.keys() & RELATIVE_FIELDS)


def changes_something(remedy: Remedy, situation: Situation) -> bool:
    """Whether the remedy changes the current settings; True for advice without a change."""
    if situation.settings is None or not remedy.change:
        return True
    now = situation.settings.model_dump()
    return any(now.get(name) != value for name, value in remedy.change.items())
