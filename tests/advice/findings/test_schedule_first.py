"""A schedule that steps before the optimizer, by the warning of torch."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.fakes.situations import situation, training
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.findings.rows import warned
from tuner_tui.advice.situation import Situation
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.settings.model import Settings

DETECTED = (
    "UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you"
)
WARNING = (f"/home/u/train.py:31: {DETECTED}", "  scheduler.step()")


def test_the_call_is_named_in_a_run_and_in_a_log() -> None:
    for shown in (situation(state=training(), log=WARNING), Situation(RunState(), 0.0, log=WARNING)):
        finding = next(each for each in diagnose(shown) if each.cause == "schedule-first")
        assert finding.sentence == "The schedule steps before the optimizer, which skips the first learning rate"
        assert finding.evidence[0].startswith("/home/u/train.py:31")
        assert [remedy.name for remedy in finding.remedies] == ["optimizer-first"]


@pytest.mark.parametrize("prefix", ["[rank0]: ", "[1,0]<stderr>: ", "2026-03-01 10:00:00 "])
def test_a_prefix_is_no_part_of_the_location(prefix: str) -> None:
    finding = warned("schedule-first", situation(log=(prefix + WARNING[0],)))
    assert finding is not None
    assert finding.evidence[0].startswith("/home/u/train.py:31")


@pytest.mark.parametrize(
    "log",
    [
        (f"/opt/env/lib/python3.11/site-packages/accelerate/scheduler.py:61: {DETECTED}",),
        (f"/opt/env/torch/optim/lr_scheduler.py:143: {DETECTED}",),
        ("scaler = torch.amp.GradScaler('cuda')", *WARNING),
        (*WARNING, "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 16384.0"),
        ("Using 16bit Automatic Mixed Precision (AMP)", *WARNING),
        ("/home/u/train.py:31: UserWarning: Please call `lr_scheduler.step()` after `optimizer.step()`.",),
        (),
    ],
)
def test_a_framework_or_a_loss_scaler_explains_the_warning(log: tuple[str, ...]) -> None:
    assert warned("schedule-first", situation(log=log)) is None


@pytest.mark.parametrize(("precision", "expected"), [("fp16", False), ("bf16", True), ("fp32", True)])
def test_only_fp16_needs_a_loss_scaler(precision: Literal["fp32", "fp16", "bf16"], expected: bool) -> None:
    finding = warned("schedule-first", situation(log=WARNING, settings=Settings(precision=precision)))
    assert (finding is not None) is expected


@pytest.mark.parametrize("line", ["dtype torch.bfloat16", "precision: bf16-mixed", "x = StandardScaler().fit(x)"])
def test_other_words_explain_nothing(line: str) -> None:
    assert warned("schedule-first", situation(log=(line, *WARNING))) is not None
