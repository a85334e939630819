"""News in the output of a training: tqdm's bars, the dictionaries that Trainer logs, lines with a step and a loss."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tuner_tui.runs.outside.told import Told, number, seconds

BARS, LOG = "progress bar", "log lines"

_BAR = re.compile(r"\d+%\|[^|\r\n]{0,300}\| *(\d+)/(\d+) \[(\d[\d:]*)<[^,\]\r\n]*, *([^\]\r\n]*)\]")
_TRAINS = re.compile(
    r"\W*(?:(?:global |train(?:ing)? ?)?(?:steps?|iter(?:ation)?s?)|train(?:ing)?|epochs?)\b", re.IGNORECASE
)
_EVALUATES = re.compile(r"\W*(?:eval\w*|valid\w*|test\w*|predict\w*|sanity\w*)\b", re.IGNORECASE)
_EPOCHS = re.compile(r"epochs?\W{0,3}\d+ ?(?:/|of) ?(\d+)", re.IGNORECASE)
_NUMBER = r"['\"]?\W{0,3}(-?(?:nan|inf|\d[\d.]*(?:e[+-]?\d+)?))"
_FIGURES: Mapping[str, re.Pattern[str]] = {
    "loss": re.compile(rf"(?<![a-z])(?:train(?:ing)?[ _])?loss{_NUMBER}", re.IGNORECASE),
    "learning_rate": re.compile(rf"\b(?:lr|learning[ _]rate){_NUMBER}", re.IGNORECASE),
    "grad_norm": re.compile(rf"\bgrad(?:ient)?[ _]?norm{_NUMBER}", re.IGNORECASE),
}
_STEP = re.compile(
    r"\b(?:global[ _]?step|step|iter(?:ation)?|batch)\b\W{0,4}(\d[\d,]*)(?:\s?(?:/|of)\s?(\d[\d,]*))?", re.IGNORECASE
)
_LOGGED = re.compile(r"\{'(?:loss|grad_norm|learning_rate|epoch|eval_\w+)': [^{}\r\n]*\}")


def bars_and_lines(text: str) -> Iterator[Told]:
    """The news in `text`, whole lines or pieces that end with a carriage return, in order."""
    for piece in re.split(r"[\r\n]+", text):
        yield from _news(piece)


def _news(piece: str) -> Iterator[Told]:
    if "%|" in piece:
        yield from _bars(piece)
    logged = _LOGGED.search(piece)
    if logged is not None:
        yield from _dictionary(logged[0])
    elif "%|" not in piece and "loss" in piece.lower():
        yield from _step_line(piece)


def _bars(piece: str) -> Iterator[Told]:
    start = 0
    for match in _BAR.finditer(piece):
        name = piece[start : match.start()].rstrip(" :").lstrip()
        start = match.end()
        if _EVALUATES.match(name):
            yield Told(BARS, evaluating=True)
        elif (not name or _TRAINS.match(name)) and _counts_steps(match[4]):
            epochs = _EPOCHS.search(name)
            yield Told(
                BARS,
                int(match[1]),
                int(match[2]),
                seconds(match[3]),
                bar=True,
                epochs=None if epochs is None else int(epochs[1]),
                **_figures(match[4]),
            )


def _counts_steps(rest: str) -> bool:
    """Whether the bar counts steps: not bytes, examples or files."""
    rate = rest.partition(",")[0]
    return rate.endswith(("it/s", "s/it", "steps/s", "s/step", "batch/s", "s/batch", "batches/s"))


def _dictionary(text: str) -> Iterator[Told]:
    try:
        values: dict[str, Any] = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        values = _loose(text)
    numbers = {name: found for name, value in values.items() if (found := number(value)) is not None}
    evaluated = {name: value for name, value in numbers.items() if name.startswith("eval_")}
    if evaluated:
        yield Told(LOG, evaluation=evaluated, epoch=numbers.get("epoch"))
    elif "loss" in numbers:
        yield Told(
            LOG,
            loss=numbers["loss"],
            learning_rate=numbers.get("learning_rate"),
            grad_norm=numbers.get("grad_norm"),
            epoch=numbers.get("epoch"),
        )


def _loose(text: str) -> dict[str, Any]:
    """A dictionary with bare `nan` or `inf` in it, which is no Python literal."""
    return dict(re.findall(r"'(\w+)': '?([^',}]+)'?", text))


def _step_line(piece: str) -> Iterator[Told]:
    step = _STEP.search(piece)
    figures = _figures(piece)
    if step is not None and "loss" in figures:
        total = None if step[2] is None else int(step[2].replace(",", ""))
        yield Told(LOG, int(step[1].replace(",", "")), total, **figures)


def _figures(text: str) -> dict[str, Any]:
    found = {name: pattern.search(text) for name, pattern in _FIGURES.items()}
    values = {name: number(match[1].rstrip(".")) for name, match in found.items() if match is not None}
    return {name: value for name, value in values.items() if value is not None}
