"""Whether accumulation changes the gradient: what the observer reports equals what is measured, for each model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tuner_tui
from tests.observer.observed_process import SCRIPTS, run_python

pytestmark = pytest.mark.train
SITE = Path(tuner_tui.__file__).parent / "observer" / "site"


def test_what_is_said_of_the_loss_is_what_the_gradient_shows() -> None:
    done = run_python(str(SCRIPTS / "loss_scale.py"), str(SITE))
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 6
    for name, (said, ratio) in found.items():
        assert said is (ratio > 1.5), (name, said, ratio)
        assert ratio == pytest.approx(4.0 if said else 1.0, rel=0.01), name
