"""Sizes, durations and percentages: one form of each everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner_tui.core import units
from tuner_tui.core.files import read_data_file

ROWS = [(name, row) for name, rows in read_data_file(Path(__file__).with_name("units.yaml")).items() for row in rows]


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_figures_with_their_units(name: str, row: list[Any]) -> None:
    *arguments, result = row
    assert getattr(units, name)(*arguments) == result


def test_an_estimate_does_not_flicker() -> None:
    assert {units.format_rough_duration(seconds) for seconds in range(2400, 2429)} == {"40 min"}
