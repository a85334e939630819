"""Estimates held against peaks that others published, one half of which nobody looked at while the formula was made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any, Literal

import pytest
from msgspec import convert

from tuner_tui.core.files import read_data_file
from tuner_tui.memory.closed_form import training_code
from tuner_tui.memory.device import Device
from tuner_tui.memory.estimate import estimate
from tuner_tui.memory.model_shape import known_shape
from tuner_tui.settings.model import Settings

FILE = Path(__file__).with_name("published_peaks.yaml")
Half = Literal["fitted", "unseen"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """By which share the estimate of one published peak was off (below 0: too small), and the share it stated."""

    name: str
    error: float
    uncertainty: float

    @property
    def inside(self) -> bool:
        """Whether the truth lies within the stated uncertainty."""
        return 1 - self.uncertainty <= 1 / (1 + self.error) <= 1 + self.uncertainty

    @property
    def too_small(self) -> bool:
        """Whether the truth is more than 3 % above the upper end of the uncertainty."""
        return 1 / (1 + self.error) > 1.03 * (1 + self.uncertainty)


def comparisons(half: Half) -> list[Comparison]:
    return [_compare(*row) for row in _rows() if _half(row[0]) == half]


def _half(name: str) -> Half:
    return "unseen" if int(sha256(name.encode()).hexdigest(), 16) % 2 else "fitted"


def _rows() -> Iterator[tuple[str, str, dict[str, Any], float]]:
    for group, source in read_data_file(FILE).items():
        for row in source["rows"]:
            values = {**source["shared"], **dict(zip(source["columns"], row, strict=False))}
            yield f"{group} {row[:-1]}", source["figure"], values, row[-1] * 1e9


def _compare(name: str, figure: str, values: dict[str, Any], peak_bytes: float) -> Comparison:
    by_name = {name: values.pop(name) for name in ("upcasts", "adapted", "keeps_inputs") if name in values}
    code = replace(training_code(values.pop("code")), **by_name)
    shape = known_shape(values.pop("model"), "causal-lm")
    assert shape is not None, name
    settings = convert({**values, "eval_strategy": "no"}, Settings)
    expected = estimate(shape, settings, Device(True, (8, 0)), code=code)
    total = expected.tensor_bytes(expected.batch) if figure == "allocated" else expected.total_bytes
    stated = max(expected.uncertainty_bytes / expected.total_bytes, expected.possible_saving)
    return Comparison(name, total / peak_bytes - 1, stated)


def test_there_are_enough_of_both_halves() -> None:
    assert min(len(comparisons("fitted")), len(comparisons("unseen"))) >= 30


@pytest.mark.parametrize(("half", "most"), [("fitted", 0.05), ("unseen", 0.07)])
def test_published_peaks_lie_within_the_stated_uncertainty(half: Half, most: float) -> None:
    compared = comparisons(half)
    assert median(abs(each.error) for each in compared) <= most
    assert sum(each.inside for each in compared) >= 0.95 * len(compared)
    assert not [each for each in compared if each.too_small]
