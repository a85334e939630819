"""torch.compile that gave up, by the warning of torch."""

from __future__ import annotations

import pytest

from tests.fakes.situations import situation, training
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.findings.rows import warned
from tuner_tui.advice.situation import Situation
from tuner_tui.runs.events.run_state import RunState

PREFIX = "W1130 18:43:46.866000 19886 torch/_dynamo/convert_frame.py:1994] [0/8] "


def warning(limit: str) -> tuple[str, ...]:
    return (
        "step 4",
        f"{PREFIX}torch._dynamo hit config.{limit} (8)",
        f"{PREFIX}   function: 'forward' (/home/u/net.py:9)",
        f"{PREFIX}   last reason: 0/7: tensor 'x' size mismatch at index 1. expected 23, actual 24",
        "step 5",
    )


@pytest.mark.parametrize("limit", ["recompile_limit", "cache_size_limit"])
def test_a_function_that_was_compiled_too_often_is_named_with_the_reason(limit: str) -> None:
    for shown in (situation(state=training(), log=warning(limit)), Situation(RunState(), 0.0, log=warning(limit))):
        finding = next(each for each in diagnose(shown) if each.cause == "compiling")
        assert finding.sentence.startswith("torch.compile gave up on forward after 8 compilations")
        assert finding.evidence[0] == "/home/u/net.py:9"
        assert finding.evidence[1].endswith("expected 23, actual 24")
        assert [remedy.name for remedy in finding.remedies] == ["stable-shapes"]


def test_a_training_that_compiled_a_few_times_is_well() -> None:
    log = ("Recompiling function forward", "torch._dynamo.config.recompile_limit = 8")
    assert warned("recompiled", situation(log=log)) is None
