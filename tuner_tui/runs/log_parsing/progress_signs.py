"""Signs of progress in training output: progress bars that advance, logged steps, success messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner_tui.runs.log_parsing.lines import BAR, LogLine

LOGGED = re.compile(r"^\{?['\"](?:loss|grad_norm|learning_rate|eval_\w+|train_runtime|epoch)['\"]: ")
PRINTED = re.compile(
    r"^(?:\W*(?:step|iter(?:ation)?|epoch|global_step|batch)\W{0,3}\d+(?=\D).{0,80}\bloss\b|.{0,60}\bloss\s?[=:]\s?\d)",
    re.IGNORECASE,
)
SUCCESS = re.compile(
    r"^(?:\W*(?:Training|Fine-?tuning) (?:completed|complete|finished|done|successful)\b|\*{3,} train metrics"
    r"|\{?'train_runtime'|Saving model checkpoint to|Model weights saved in|\W*All done\b|\W*Done[.!]*$"
    r"|Finished training)",
    re.IGNORECASE,
)

DEALT_WITH = re.compile(
    r"(?i)\b(?:retry|retrying|trying again|try(?:ing)? (?:a )?(?:batch|with|smaller)"
    r"|(?:reduc|decreas|lower|halv)(?:e|ing) (?:the )?(?:micro )?(?:batch|bs)|new batch size"
    r"|fall(?:ing)? ?back|skipp?(?:ed|ing)|ignor(?:ed|ing)|recover(?:ed|ing)|continu(?:e|ing)"
    r"|using .{1,40} instead|disabling|will not be used)\b"
)
"""What a program logs when it has handled a failure."""


@dataclass(frozen=True, slots=True)
class BarState:
    """The count of the progress bar of `total` steps on line `number`."""

    number: int
    rank: int | None
    total: str
    done: int


@dataclass(frozen=True, slots=True)
class ProgressSigns:
    """All signs of progress in an output: progress bars, and (line, rank) of lines that log progress."""

    bars: tuple[BarState, ...]
    logged: tuple[tuple[int, int | None], ...]

    def goes_on(self, after: int, rank: int | None, buffered: bool) -> bool:
        """Whether the training made progress after line `after`.

        `rank`: only lines of that rank count. `buffered`: ordinary output may have been held back and written at exit,
        after the traceback; then only progress bars count, which are written at once.
        """
        logged = any(number > after and _is_of_rank(rank, other) for number, other in self.logged)
        return self._bars_advance(after, rank) or (logged and not buffered)

    def speaks_before(self, number: int) -> bool:
        """Whether ordinary output precedes line `number`, and so is not held back until exit."""
        return any(line < number for line, _ in self.logged)

    def _bars_advance(self, after: int, rank: int | None) -> bool:
        """Whether a bar advanced or a new one moved; a process that ends only draws its last bar again."""
        before = _furthest(bar for bar in self.bars if bar.number <= after)
        later = _furthest(bar for bar in self.bars if bar.number > after and _is_of_rank(rank, bar.rank))
        return any(done > before.get(total, 1) for total, done in later.items())


def find_progress_signs(lines: Sequence[LogLine]) -> ProgressSigns:
    bars = tuple(
        BarState(line.number, line.rank, match[2], int(match[1]))
        for line in lines
        if "[" in line.text
        for match in BAR.finditer(line.text)
    )
    return ProgressSigns(bars, tuple((line.number, line.rank) for line in lines if reports_progress(line.text)))


def reports_success(lines: Sequence[LogLine]) -> bool:
    """Whether the output says that the training completed."""
    return any(SUCCESS.match(line.text) for line in lines)


def reports_progress(text: str) -> bool:
    """Whether a line logs progress or success."""
    return bool(LOGGED.match(text) or PRINTED.match(text) or SUCCESS.match(text))


def _is_of_rank(rank: int | None, other: int | None) -> bool:
    return rank is None or other is None or rank == other


def _furthest(bars: Iterable[BarState]) -> dict[str, int]:
    """The highest count of each bar, by its total."""
    furthest: dict[str, int] = {}
    for bar in bars:
        furthest[bar.total] = max(furthest.get(bar.total, 0), bar.done)
    return furthest
