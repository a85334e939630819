"""What to do when the loop's own code takes the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.situation import Situation

LESS_OFTEN = Remedy(
    title="do what comes after the step less often",
    why="metrics, plots, samples, files written by hand: every 10 or 100 steps instead of after each one",
    effect="at most the time that passes there",
    rests_on="the measured share",
    source="measured between the optimizer step and the next request for a batch",
)
FIND_LINE = Remedy(
    title="find the line",
    why="`py-spy top --pid` names the functions in which the training process spends its time",
    source="py-spy",
)

LADDERS: Mapping[str, Callable[[Situation, str | None], tuple[Remedy, ...]]] = {
    "between-steps": lambda situation, where: (LESS_OFTEN, FIND_LINE),
}
