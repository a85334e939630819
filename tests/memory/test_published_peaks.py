"""Estimates held against peaks that others published, one half of which nobody looked at while the formula was made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, Literal

import pytest
from msgspec import convert
from msgspec.structs import replace

from tuner_tui.core.files import read_data_file
from tuner_tui.memory.activation_memory import FOUR_BITS
from tuner_tui.memory.device import Device
from tuner_tui.memory.estimate import SHARDED_UNCERTAINTY, estimate
from tuner_tui.memory.known_shapes import known_shape
from tuner_tui.memory.training_code import training_code
from tuner_tui.settings.distributed import Sharding
from tuner_tui.settings.model import Settings

FILE = Path(__file__).with_name("published_peaks.yaml")
Half = Literal["fitted", "unseen"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """By which share the estimate of one published peak was off (below 0: too small), and the share it stated."""

    name: str
    error: float
    uncertainty: float
    code: str
    """The row of training_code.yaml whose uncertainty it is; empty for an architecture without a closed form."""

    @property
    def off(self) -> float:
        """By which share of the estimate the truth lies beside it."""
        return abs(1 / (1 + self.error) - 1)

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
    names = ("upcasts", "adapted", "keeps_inputs", "holds_graph", "more_embeddings")
    by_name = {name: values.pop(name) for name in names if name in values}
    model = values.pop("model")
    row = values.pop("code_of", {}).get(model, values.pop("code"))
    code = replace(training_code(row), **by_name)
    shape = known_shape(model, "causal-lm")
    assert shape is not None, name
    kind, stage, processes = values.pop("sharding", ("", None, 1))
    sharding = None if stage is None else Sharding(kind, stage, by_deepspeed=kind == "zero")
    settings = convert({**values, "eval_strategy": "no"}, Settings)
    expected = estimate(shape, settings, Device(True, (8, 0)), processes, code, sharding)
    total = expected.tensor_bytes(expected.batch) if figure == "allocated" else expected.total_bytes
    stated = max(expected.uncertainty_bytes / expected.total_bytes, expected.possible_saving)
    if sharding is not None:
        return Comparison(name, total / peak_bytes - 1, stated, "sharded")
    row = "older bitsandbytes" if code.keeps_inputs and settings.quantization in FOUR_BITS else row
    return Comparison(name, total / peak_bytes - 1, stated, "" if shape.approximates else row)


def calibrated_uncertainty(code: str) -> float:
    """The uncertainty of a row of training_code.yaml by the fitted half, as a share rounded up.

    It is the largest error of the row's n peaks, enlarged by 1/n; of code that is counted tensor by tensor, at least
    the 95 % quantile of all such peaks together (split conformal prediction: the ⌈0.95·(n + 1)⌉-th smallest error).
    """
    fitted = comparisons("fitted")
    errors = [each.off for each in fitted if each.code == code]
    counted = sorted(each.off for each in fitted if each.code in COUNTED)
    least = counted[min(len(counted), ceil(0.95 * (len(counted) + 1))) - 1] if code in COUNTED else 0.0
    enlarged = max(errors) * (1 + 1 / len(errors)) if errors else 0.0
    return ceil(100 * max(least, enlarged)) / 100


COUNTED = ("litgpt", "older transformers", "transformers before 4.46", "older bitsandbytes")


def test_the_uncertainty_of_sharded_trainings_is_that_of_the_fitted_half() -> None:
    assert calibrated_uncertainty("sharded") == SHARDED_UNCERTAINTY


@pytest.mark.parametrize("code", [*COUNTED, "deepspeed", "torchtune"])
def test_the_stated_uncertainty_is_calibrated_by_the_fitted_half(code: str) -> None:
    assert training_code(code).uncertainty == calibrated_uncertainty(code)


def test_there_are_enough_of_both_halves() -> None:
    assert min(len(comparisons("fitted")), len(comparisons("unseen"))) >= 30


@pytest.mark.parametrize(("half", "most"), [("fitted", 0.03), ("unseen", 0.05)])
def test_published_peaks_lie_within_the_stated_uncertainty(half: Half, most: float) -> None:
    compared = comparisons(half)
    # Those on several GPUs are far less certain, and their bounds wider.
    assert median(abs(each.error) for each in compared if each.code != "sharded") <= most
    assert sum(each.inside for each in compared) / len(compared) >= 0.9
    assert not [each for each in compared if each.too_small]
