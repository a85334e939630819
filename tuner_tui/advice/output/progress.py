"""Signs of life after a failure: a training that went on did not die of what was written before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tuner_tui.advice.output.lines import BAR, Line

LOGGED = re.compile(r"^\{?['\"](?:loss|grad_norm|learning_rate|eval_\w+|train_runtime|epoch)['\"]: ")
PRINTED = re.compile(
    r"^(?:\W*(?:step|iter(?:ation)?|epoch|global_step|batch)\W{0,3}\d+(?=\D).{0,80}\bloss\b|.{0,60}\bloss\s?[=:]\s?\d)",
    re.IGNORECASE,
)
SUCCESS = re.compile(
    r"^(?:\W*(?:Training|Fine-?tuning) (?:completed|complete|finished|done|successful)\b|\*{3,} train metrics|\{?'train_runtime'|Saving model checkpoint to|Model weights saved in|\W*All done\b|\W*Done[.!]*$"
    r"|Finished training)",
    re.IGNORECASE,
)


def goes_on(lines: Sequence[Line], after: int, rank: int | None, buffered: bool) -> bool:
    """Whether the training made progress after line number `after`.

    `rank`: only that rank's lines count. `buffered` says that ordinary output may have been held back and written at
    the exit, behind the traceback; then only progress bars count, which are written at once.
    """
    later = [line for line in lines if line.number > after and (rank is None or line.rank in (rank, None))]
    if _bars_advance(lines, later, after):
        return True
    told = [line for line in later if LOGGED.match(line.text) or PRINTED.match(line.text) or SUCCESS.match(line.text)]
    return bool(told) and not buffered


def succeeded(lines: Sequence[Line]) -> bool:
    """Whether the output says that the training came to its end."""
    return any(SUCCESS.match(line.text) for line in lines)


def speaks_before(lines: Sequence[Line], before: int) -> bool:
    """Whether ordinary output stands before line `before`: then it is not held back to the exit."""
    return any(line.number < before and (LOGGED.match(line.text) or PRINTED.match(line.text)) for line in lines)


def _bars_advance(lines: Sequence[Line], later: Sequence[Line], after: int) -> bool:
    """A bar got further than before, or a new one moved. A dying process draws its old bar once more: no progress."""
    before = _furthest(line for line in lines if line.number <= after)
    return any(done > before.get(total, 1) for total, done in _furthest(later).items())


def _furthest(lines: Iterable[Line]) -> dict[str, int]:
    """The highest count of each bar, by its total."""
    furthest: dict[str, int] = {}
    for line in lines:
        for match in BAR.finditer(line.text):
            furthest[match[2]] = max(furthest.get(match[2], 0), int(match[1]))
    return furthest
