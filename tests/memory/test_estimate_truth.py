"""The estimate held against what trainings took, on every hardware that was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.memory.truth import closed_form, device_of, errors, result_files, results, traced
from tuner_tui.memory.estimate import CLOSED_FORM_DOUBT, RESERVE

FILES = result_files()


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_the_closed_form_is_near_the_truth(file: Path) -> None:
    found = errors(closed_form(device_of(file)), results(file))
    assert found.quantile(0.5) <= 0.05
    assert found.quantile(0.9) <= 0.10
    assert found.under(RESERVE + CLOSED_FORM_DOUBT) <= 0.01


@pytest.mark.train
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_tracing_is_nearer(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    small = [one for one in results(file) if (one.case.model, one.case.length) == ("tiny", 64)][::4]
    assert small
    found = errors(traced(device_of(file), tmp_path), small)
    assert found.quantile(0.5) <= 0.01
    assert found.quantile(0.9) <= 0.05
    assert found.under(RESERVE) <= 0.01
