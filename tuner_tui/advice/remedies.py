"""Remedies for a finding, in the order to try them: the ladders of the field notes, with their errors put right.

Each is filtered by what the box and the interpreter can run and by what is already set, so that a remedy offered is a
remedy that changes something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.ladders import data, gpu, host, loop, out_of_memory, refused, run
from tuner_tui.advice.situation import Situation

Ladder = Callable[[Situation, str | None], tuple[Remedy, ...]]

RELATIVE = frozenset({
    "per_device_train_batch_size", "gradient_accumulation_steps", "per_device_eval_batch_size", "max_length",
    "learning_rate", "eval_steps", "save_steps",
})  # fmt: skip
"""Settings whose new value is worked out from the old one."""
LADDERS: Mapping[str, Ladder] = {
    "gpu-oom": out_of_memory.ladder,
    "gpu-memory-near-limit": out_of_memory.ladder,
    **host.LADDERS,
    **data.LADDERS,
    **gpu.LADDERS,
    **refused.LADDERS,
    **run.LADDERS,
    **loop.LADDERS,
}


def remedies_for(cause: str, situation: Situation, where: str | None = None) -> tuple[Remedy, ...]:
    """The remedies for `cause` at `where`, the one of least harm first; empty where none is known."""
    ladder = LADDERS.get(cause)
    if ladder is None:
        return ()
    fitting = (r for r in ladder(situation, where) if changes_something(r, situation) and rests_on_known(r, situation))
    return tuple(fitting)


def rests_on_known(remedy: Remedy, situation: Situation) -> bool:
    """Whether every value that the remedy starts from is the training's own, not a default that its script lacks."""
    return all(situation.knows(name) for name in remedy.change.keys() & RELATIVE)


def changes_something(remedy: Remedy, situation: Situation) -> bool:
    """Whether the remedy's change differs from the settings in force; advice without a change always counts."""
    if situation.settings is None or not remedy.change:
        return True
    now = situation.settings.model_dump()
    return any(now.get(name) != value for name, value in remedy.change.items())
