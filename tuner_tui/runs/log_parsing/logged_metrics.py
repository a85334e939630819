"""Parses loss and gradient norm from output, to find values that are not finite.

Trainer logs a loss of 0.0 where it is NaN (`logging_nan_inf_filter`); only the gradient norm then shows it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner_tui.runs.log_parsing.lines import LogLine

NUMBER = r"['\"]?(?P<value>-?(?:nan|inf(?:inity)?|\d[\d.]*(?:e[+-]?\d+)?))\b['\"]?"
LOSS = re.compile(rf"(?:^|[\s,{{|\[(])['\"]?(?:train[_ ]?|training )?loss['\"]?\s?[=:]?\s?{NUMBER}", re.IGNORECASE)
EVAL_LOSS = re.compile(rf"['\"]?\b(?:eval|val|validation|valid)[_ ]loss['\"]?\s?[=:]\s?{NUMBER}", re.IGNORECASE)
GRAD_NORM = re.compile(rf"['\"]?\bgrad(?:ient)?[_ ]?norm['\"]?\s?[=:]\s?{NUMBER}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LoggedMetrics:
    """The figures of one line."""

    number: int
    loss: float | None
    grad_norm: float | None
    eval_loss: float | None


def parse_metrics(lines: Iterable[LogLine]) -> tuple[LoggedMetrics, ...]:
    """All lines that log a loss or a gradient norm, in order."""
    found = (
        LoggedMetrics(
            line.number, _number(LOSS, line.text), _number(GRAD_NORM, line.text), _number(EVAL_LOSS, line.text)
        )
        for line in lines
        if "loss" in line.text.lower() or "grad" in line.text
    )
    return tuple(logged for logged in found if (logged.loss, logged.grad_norm, logged.eval_loss) != (None, None, None))


def count_trailing_non_finite(values: Sequence[float | None]) -> int:
    """How many of the last known values in a row are NaN or infinite."""
    known = [value for value in values if value is not None]
    count = 0
    while count < len(known) and not math.isfinite(known[-1 - count]):
        count += 1
    return count


def _number(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    if match is None:
        return None
    try:
        return float(match["value"].rstrip("."))
    except ValueError:
        return None
