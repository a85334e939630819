"""An evaluation that takes its batches from no loader is none of the training's time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observer.observed_process import SCRIPTS, last_steps, observe

pytestmark = pytest.mark.train


def test_the_time_from_eval_mode_to_the_next_batch_is_evaluation(tmp_path: Path) -> None:
    seen = observe(tmp_path, str(SCRIPTS / "listed_evaluation.py"))
    assert seen.exit_code == 0, seen.errors
    final = last_steps(seen.events)
    assert (final.own_steps, final.micro_steps, final.samples) == (8, 8, 32)
    assert final.eval_s >= 2 * 0.2
    assert final.slowest_step_s is not None
    assert final.slowest_step_s < final.eval_s
