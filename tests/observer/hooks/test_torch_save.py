"""Evaluations and saves of a plain loop that does not say where they end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observer.observed_process import SCRIPTS, last_steps, observe
from tests.observer.scripts.evaluation_at_the_end import EVALUATION_S, SAVING_S
from tuner_tui.runs.events.types import Phase, Saved

pytestmark = pytest.mark.train
SCRIPT = str(SCRIPTS / "evaluation_at_the_end.py")


def test_an_evaluation_that_ends_the_run_is_counted(tmp_path: Path) -> None:
    final = last_steps(observe(tmp_path, SCRIPT).events)
    assert final.own_steps == 8
    assert final.eval_s >= 3 * EVALUATION_S
    assert final.save_s == 0


@pytest.mark.full
def test_a_save_right_after_an_evaluation_is_a_save(tmp_path: Path) -> None:
    found = observe(tmp_path, SCRIPT, "save")
    final = last_steps(found.events)
    assert final.save_s >= 2 * SAVING_S
    assert final.eval_s >= 3 * EVALUATION_S
    phases = [event.phase for event in found.of(Phase)]
    assert phases[:6] == ["starting", "training", "evaluating", "saving", "training", "evaluating"]


def test_what_is_saved_into_an_archive_is_reported_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [(event.step, event.path) for event in observe(tmp_path, SCRIPT, "zip").of(Saved)][-1] == (
        8,
        str(tmp_path / "model.zip"),
    )
