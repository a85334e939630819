"""Steps that change nothing or something else: frozen parameters, a rate of 0, what the loop does not reset."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.situations import situation, training
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.findings.non_finite import no_effect
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.types import BACKWARD, Finished, Metrics


@pytest.mark.parametrize(
    ("rates", "source", "given", "where"),
    [
        ({1: 1e-3, 5: 0.0, 600: 0.0}, BACKWARD, 1e-3, "schedule"),
        ({1: 0, 600: 0}, None, 0, "rate"),
        ({1: 1e-3, 591: 0.0, 600: 0.0}, None, 1e-3, None),  # the end of a schedule
        ({1: 0.0, 300: 0.0, 590: 1e-3}, None, 1e-3, None),  # a warm-up
        ({1: 1e-3, 5: 0.0, 300: 1e-3, 599: 0.0}, None, 1e-3, None),  # cycles
        ({1: 0.0, 600: 0.0}, "log lines", 1e-6, None),  # rounded
        ({1: 0.0, 600: 0.0}, "wandb", 0.0, None),  # perhaps of one group of several
    ],
)
def test_a_rate_that_stays_at_0(rates: dict[int, float], source: str | None, given: float, where: str | None) -> None:
    events = [Metrics(t=1.0, step=step, learning_rate=rate, source=source) for step, rate in rates.items()]
    finding = no_effect(situation(state=fold_all(training(in_effect={"learning_rate": given}), events)))
    assert (finding and finding.where) == where
    if finding is not None:
        since = next(step for step, rate in rates.items() if not rate)
        assert (
            finding.sentence == f"The learning rate is 0 at least since step {since}: {600 - since} steps had no effect"
        )
        assert len(finding.remedies) == 1


@pytest.mark.parametrize(
    ("changes", "speaks"),
    [
        ({"trainable_parameters": 0, "parameters": 5000}, True),
        ({"trainable_parameters": 1, "parameters": 5000}, False),
        ({"trainable_parameters": None}, False),
        ({"trainable_parameters": 0, "steps": {"own_steps": 9}}, False),
        ({"trainable_parameters": 0, "in_effect": {"optimizers": 2}}, False),  # each may be frozen in turn
    ],
)
def test_an_optimizer_without_trainable_parameters(changes: dict[str, Any], speaks: bool) -> None:
    finding = no_effect(situation(state=training(**changes)))
    assert (finding is not None) is speaks
    if finding is not None:
        assert finding.sentence == "All parameters of the optimizer are frozen: 600 steps had no effect"
        assert finding.evidence == ("of 5,000 parameters the optimizer trains none",)


@pytest.mark.parametrize(
    ("in_effect", "sentences"),
    [
        ({"gradients_kept": True}, ["The gradients {} never cleared: those of all earlier steps {} part of each step"]),
        (
            {"eval_mode_since": 33},
            ["The model {} in eval mode since step 33: no dropout, and batch norm {} fixed"],
        ),
        ({"eval_mode_since": 595}, []),  # for a few steps
        ({"eval_mode_since": None}, []),
        ({}, []),
    ],
)
@pytest.mark.parametrize("over", [False, True])
def test_what_a_loop_does_not_reset(in_effect: dict[str, Any], sentences: list[str], over: bool) -> None:
    finished = Finished(t=1.0, outcome="completed", sentence="") if over else None
    findings = diagnose(situation(state=training(in_effect=in_effect, finished=finished)))
    tense = ("were" if over else "are",) * 2 if "gradients_kept" in in_effect else ("was" if over else "is",) * 2
    assert [each.sentence for each in findings] == [sentence.format(*tense) for sentence in sentences]
    assert all(each.severity == "warning" and len(each.remedies) == 1 for each in findings)
