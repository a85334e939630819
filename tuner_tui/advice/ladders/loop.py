"""What to do when the loop's own code takes the time, or the memory."""

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

KEEP_NUMBERS = Remedy(
    title="keep numbers instead of tensors",
    why="a loss that is summed or listed without `.item()`, or an output without `.detach()`, keeps its step's graph",
    effect="memory stays as it is after the first steps",
    rests_on="what is held between steps rises evenly",
    source="PyTorch's FAQ on memory",
)
FIND_HOLDER_ON_CARD = Remedy(
    title="find who holds it",
    why="`torch.cuda.memory._record_memory_history()`, and after some steps `_dump_snapshot(FILE)`: "
    "each block with the line that made it",
    source="PyTorch's notes on CUDA memory",
)
FIND_HOLDER_ON_HOST = Remedy(
    title="find who holds it",
    why="`memray run` names the lines; a dataset that caches its samples is one of the usual ones",
    source="memray",
)

LADDERS: Mapping[str, Callable[[Situation, str | None], tuple[Remedy, ...]]] = {
    "between-steps": lambda situation, where: (LESS_OFTEN, FIND_LINE),
    "memory-grows": lambda situation, where: (
        KEEP_NUMBERS,
        FIND_HOLDER_ON_CARD if where == "gpu" else FIND_HOLDER_ON_HOST,
    ),
}
