"""What is wrong between box and Python is a finding before any run."""

from __future__ import annotations

from tests.ui.live_fakes import inventory
from tuner_tui.advice.misfits import box_findings
from tuner_tui.hardware.interpreter import Interpreter


def test_a_torch_for_the_cpu_on_a_box_with_cards_is_a_finding() -> None:
    python = Interpreter("/opt/bin/python", packages={"torch": "2.13.0+cpu"})
    [finding] = box_findings(inventory(), python)
    assert finding.severity == "warning"
    assert "without CUDA" in finding.sentence
    assert "pip install torch" in finding.remedies[0].title
    assert not finding.remedies[0].change


def test_nothing_is_said_before_both_are_known() -> None:
    assert box_findings(None, Interpreter("python", packages={"torch": "2.13.0+cpu"})) == ()
    assert box_findings(inventory(), None) == ()
