"""Whether accumulation changes the gradient: what the observer reports equals what is measured, for each model."""

from __future__ import annotations

import json

import pytest

from tests.observer.observed_process import SCRIPTS, SITE, run_python

pytestmark = [pytest.mark.train, pytest.mark.full]


def test_reported_loss_scale_equals_that_of_the_gradient() -> None:
    done = run_python(str(SCRIPTS / "loss_scale.py"), str(SITE))
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 6
    for name, (reported, ratio) in found.items():
        assert reported is (ratio > 1.5), (name, reported, ratio)
        assert ratio == pytest.approx(4.0 if reported else 1.0, rel=0.01), name
