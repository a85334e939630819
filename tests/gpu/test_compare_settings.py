"""The comparison on a GPU if there is one, and a small one on a CPU that runs all the code."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.listed_search import measured
from tests.gpu.compare_settings import ON_CARD, ON_CPU, Row, Scenario, measure, rows_of, table, write
from tuner_tui.runs.launch.command import has_gpu
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.trial import Measurement, TrialProtocol

[SMALL] = ON_CPU
QUICK = TrialProtocol(spread=0.5, least_s=0.1, most_s=1.0)


def given(scenario: Scenario, root: Path, minutes: float) -> Settings:
    """Replaces the tuning."""
    return scenario.noted.changed(per_device_train_batch_size=16, gradient_accumulation_steps=2)


@pytest.mark.full
@pytest.mark.train
def test_in_small_on_a_processor(tmp_path: Path) -> None:
    rows = measure(SMALL, tmp_path, minutes=1.0, rounds=1, tune=given, terms=QUICK)
    assert [row.who for row in rows] == ["Trainer's defaults", "notes: demo", "tuned"]
    for row in rows:
        assert row.outcome == "measured", row.sentence
        assert row.unit == "tokens/s"
        assert row.peak_gib is not None
        assert 0.3 < row.peak_gib < 3
    assert rows[0].ratio == 1
    assert rows[0].change == {}
    assert rows[2].change["gradient_accumulation_steps"] == 2
    write(tmp_path / "result.json", "cpu", rows)
    assert [Row(**row).who for row in json.loads((tmp_path / "result.json").read_text())["rows"]][2] == "tuned"


def test_a_rival_that_fails_in_one_round_has_no_figure() -> None:
    rivals = {"first": SMALL.default, "second": SMALL.noted}
    memory = Measurement(outcome="out-of-memory", seconds=9.0, sentence="Out of memory.")
    found = {"first": [measured(100), measured(120), measured(101)], "second": [measured(900), memory]}
    first, second = rows_of(SMALL, rivals, found)
    assert (first.throughput, first.ratio) == (101, 1)
    assert (second.outcome, second.throughput, second.ratio) == ("out-of-memory", None, None)
    assert "| 3 GiB | second | out-of-memory | – | – |" in table([first, second])


def test_every_scenario_can_be_launched_as_it_stands() -> None:
    for scenario in (*ON_CARD, *ON_CPU):
        assert scenario.noted.max_length == scenario.default.max_length
        assert scenario.noted != scenario.default


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(os.environ), reason="no NVIDIA GPU")
@pytest.mark.parametrize("scenario", ON_CARD, ids=lambda scenario: scenario.name)
def test_on_a_card_the_tuned_settings_are_the_fastest(scenario: Scenario, tmp_path: Path) -> None:
    rows = measure(replace(scenario, max_length=64), tmp_path, minutes=6.0, rounds=1)
    tuned = rows[-1]
    assert tuned.throughput is not None, tuned.sentence
    for row in rows[:-1]:
        assert row.throughput is None or tuned.throughput > 0.95 * row.throughput
