"""Parses training progress from output: tqdm bars, dictionaries that Trainer logs, lines with a step and a loss."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner_tui.runs.log_parsing.lines import ANSI, MAX_LINE_CHARACTERS
from tuner_tui.runs.read.log_only.line_figures import may_have_figures, parse_line


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """Progress parsed from one line of output or of a tool's file; None where it does not say.

    `elapsed_s` is the training time at `step` as the source reports it. A `bar` may count one epoch only, and the
    counter of a line does if it is `per_epoch`; `epochs` is the number of epochs. `evaluation` holds metrics by their
    names.
    """

    source: str
    step: int | None = None
    total_steps: int | None = None
    elapsed_s: float | None = None
    loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    epoch: float | None = None
    bar: bool = False
    per_epoch: bool = False
    epochs: int | None = None
    evaluating: bool = False
    evaluation: Mapping[str, float] = field(default_factory=dict)


def parse_number(value: Any) -> float | None:
    """A number, or text that is one (`nan` too); else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def parse_count(value: Any) -> int | None:
    """A non-negative whole number; else None."""
    found = parse_number(value)
    return int(found) if found is not None and math.isfinite(found) and found >= 0 and found == int(found) else None


def parse_duration(text: Any) -> float | None:
    """Seconds from `1:02:03`, `02:03`, `1 day, 2:00:00` or ms-swift's `1h 2m 3s`; else None."""
    if not isinstance(text, str):
        return parse_number(text)
    days, comma, clock = text.rpartition(", ")
    if ":" in clock and clock.replace(":", "").isdigit():
        parts = [int(part) for part in clock.split(":")]
        total = sum(part * 60**power for power, part in enumerate(reversed(parts)))
        return float(total + (86400 * int(days.split()[0]) if comma and days.split()[0].isdigit() else 0))
    units = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
    words = text.split()
    if words and all(word[-1] in units and parse_number(word[:-1]) is not None for word in words):
        return sum(float(word[:-1]) * units[word[-1]] for word in words)
    return None


BARS, LOG = "progress bar", "log lines"

MAX_NAME_CHARACTERS = 300
"""Of the text before a bar."""
_BAR = re.compile(r"\d+%\|[^|\r\n]{0,300}\| *(\d+)/(\d+) \[(\d[\d:]*)<[^,\]\r\n]*, *([^\]\r\n]*)\]")
_TRAINS = re.compile(
    r"\W*(?:(?:global |train(?:ing)? ?)?(?:steps?|iter(?:ation)?s?)|train(?:ing)?|epochs?)\b", re.IGNORECASE
)
_EVALUATES = re.compile(r"\W*(?:eval\w*|valid\w*|test\w*|predict\w*|sanity\w*)\b", re.IGNORECASE)
_KERAS_BAR = re.compile(r"\s*(\d+)/(\d+) (?:\[[=>.]{5,}\]|━{5,}).{0,40}?(?:/step|/epoch|ETA:)")
_EPOCH_LINE = re.compile(r"\s*epochs?\W{0,3}(\d+) ?(?:/|of) ?(\d+)\W{0,5}", re.IGNORECASE)
_COUNT = re.compile(r"(\d+)/(\d+) \[")
_EPOCHS = re.compile(r"epochs?\W{0,3}\d+ ?(?:/|of) ?(\d+)", re.IGNORECASE)
_LOGGED = re.compile(r"\{'(?:loss|grad_norm|learning_rate|epoch|eval_\w+)': [^{}\r\n]*\}")


MAX_BARS = 2000
"""A bar is drawn ten times a second: of more states of bars than this, as many are parsed."""
MAX_PIECE_CHARACTERS = 64 << 10
"""Of a longer line the end is parsed."""


def parse_output(text: str) -> Iterator[ProgressRecord]:
    """The progress records in `text`, which consists of whole lines or parts that end with a carriage return.

    Of very many states of bars, records are given at even distances and where a bar ends or begins.
    """
    for piece in _thinned(re.split(r"[\r\n]+", text)):
        yield from _parse_piece(piece[-MAX_PIECE_CHARACTERS:])


def _thinned(pieces: list[str]) -> Iterator[str]:
    """The pieces without most of the states of bars that a later state of the same bar follows."""
    bars = [number for number, piece in enumerate(pieces) if "%|" in piece]
    stride = len(bars) // MAX_BARS
    if stride < 2:
        yield from pieces
        return
    counts = {number: _COUNT.findall(pieces[number][-MAX_PIECE_CHARACTERS:]) for number in bars}
    kept = {
        number
        for place, (number, following) in enumerate(zip(bars, [*bars[1:], None], strict=True))
        if place % stride == 0 or following is None or not _goes_on(counts[number], counts[following])
    }
    yield from (piece for number, piece in enumerate(pieces) if number not in counts or number in kept)


def _goes_on(counts: list[tuple[str, str]], later: list[tuple[str, str]]) -> bool:
    """Whether both are states of one bar, the later one further on."""
    if len(counts) != 1 or len(later) != 1:
        return False
    (done, total), (later_done, later_total) = counts[0], later[0]
    return total == later_total and int(done[-18:]) <= int(later_done[-18:])


def _parse_piece(piece: str) -> Iterator[ProgressRecord]:
    if "%|" in piece:
        yield from _bars(piece)
    logged = _LOGGED.search(piece)
    if logged is not None:
        yield from _dictionary(logged[0])
    elif "%|" not in piece and "train_runtime" not in piece:
        yield from _printed_line(piece[-MAX_LINE_CHARACTERS:])


def _bars(piece: str) -> Iterator[ProgressRecord]:
    start = 0
    for match in _BAR.finditer(piece):
        name = piece[max(start, match.start() - MAX_NAME_CHARACTERS) : match.start()].rstrip(" :").lstrip()
        start = match.end()
        if _EVALUATES.match(name):
            yield ProgressRecord(BARS, evaluating=True)
            continue
        figures = parse_line(f"{name} | {match[4]}" if may_have_figures(name) else match[4])
        if (not name or _TRAINS.match(name)) and _counts_steps(match[4]):
            epochs = _EPOCHS.search(name)
            yield ProgressRecord(
                BARS,
                int(match[1]),
                int(match[2]),
                parse_duration(match[3]),
                bar=True,
                epochs=None if epochs is None else int(epochs[1]),
                loss=figures.loss,
                learning_rate=figures.learning_rate,
                grad_norm=figures.grad_norm,
            )
        elif figures.loss is not None:
            yield ProgressRecord(BARS, loss=figures.loss, learning_rate=figures.learning_rate)


def _counts_steps(rest: str) -> bool:
    """Whether the bar counts steps, not bytes, examples or files."""
    rate = rest.partition(",")[0]
    return rate.endswith(("it/s", "s/it", "steps/s", "s/step", "batch/s", "s/batch", "batches/s"))


def _dictionary(text: str) -> Iterator[ProgressRecord]:
    try:
        values: dict[str, Any] = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        values = _parse_loosely(text)
    numbers = {name: found for name, value in values.items() if (found := parse_number(value)) is not None}
    evaluated = {name: value for name, value in numbers.items() if name.startswith("eval_")}
    if evaluated:
        yield ProgressRecord(LOG, evaluation=evaluated, epoch=numbers.get("epoch"))
    elif "loss" in numbers:
        yield ProgressRecord(
            LOG,
            loss=numbers["loss"],
            learning_rate=numbers.get("learning_rate"),
            grad_norm=numbers.get("grad_norm"),
            epoch=numbers.get("epoch"),
        )


def _parse_loosely(text: str) -> dict[str, Any]:
    """Parses a dictionary that contains bare `nan` or `inf`, which is no Python literal."""
    return dict(re.findall(r"'(\w+)': '?([^',}]+)'?", text))


def _printed_line(piece: str) -> Iterator[ProgressRecord]:
    if not may_have_figures(piece):
        alone = _EPOCH_LINE.fullmatch(ANSI.sub("", piece)) if "poch" in piece else None
        if alone is not None:
            yield ProgressRecord(LOG, epochs=int(alone[2]))
        return
    text = ANSI.sub("", piece)
    found, bar = parse_line(text), _KERAS_BAR.match(text)
    if bar is not None:
        yield ProgressRecord(BARS, int(bar[1]), int(bar[2]), loss=found.loss, bar=True)
    elif found.loss is not None:
        yield ProgressRecord(
            LOG,
            found.step,
            found.total_steps,
            loss=found.loss,
            learning_rate=found.learning_rate,
            grad_norm=found.grad_norm,
            epoch=found.epoch,
            per_epoch=found.per_epoch,
            epochs=found.epochs,
        )
    if found.evaluation:
        yield ProgressRecord(LOG, evaluation=found.evaluation, epoch=found.epoch)
