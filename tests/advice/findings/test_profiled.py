"""What profiled steps add to a diagnosis."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.fakes.situations import NOW, situation, training
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.finding import Finding
from tuner_tui.runs.events.types import Profiled


def profiled(bound: str, share: float) -> dict[str, Finding]:
    sentence = f"{bound.capitalize()}-bound: {share:.0%} of a step."
    event = Profiled(t=NOW, bound=bound, share=share, where="log_step (train.py:9)", sentence=sentence, evidence=("a",))
    findings = diagnose(situation(state=replace(training(), profiled=event)))
    return {finding.cause: finding for finding in findings}


def test_code_without_operators_is_named() -> None:
    finding = profiled("host", 0.4)["own-code"]
    assert finding.sentence == "The program's own code takes 40 % of each step, most in log_step (train.py:9)"
    assert finding.lost_share is not None
    (remedy,) = finding.remedies
    assert (remedy.title, remedy.effect) == ("take the code out of the step", "at most 67 % faster")


def test_launches_are_named() -> None:
    finding = profiled("launch", 0.5)["launch-bound"]
    assert (finding.confidence, finding.severity) == ("certain", "warning")


@pytest.mark.parametrize(("bound", "share"), [("device", 0.95), ("host", 0.05), ("ranks", 0.4)])
def test_a_step_that_computes_is_no_finding(bound: str, share: float) -> None:
    assert not {"own-code", "launch-bound"} & set(profiled(bound, share))
