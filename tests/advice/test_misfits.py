"""What is wrong between box and Python is a finding before any run."""

from __future__ import annotations

from tests.ui.live_fakes import inventory
from tuner_tui.advice.misfits import box_findings
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.settings.job import BuiltinJob, CommandJob

COMMAND = CommandJob(command=("python", "train.py"))


def python(**packages: str) -> Interpreter:
    return Interpreter("/opt/bin/python", "3.12.4", packages)


def test_a_torch_for_the_cpu_on_a_box_with_cards_is_a_finding() -> None:
    [finding] = box_findings(inventory(), python(torch="2.13.0+cpu"), COMMAND)
    assert finding.severity == "warning"
    assert "without CUDA" in finding.sentence
    assert "pip install torch" in finding.remedies[0].title
    assert not finding.remedies[0].change


def test_nothing_is_said_before_both_are_known() -> None:
    assert box_findings(None, python(torch="2.13.0+cpu"), COMMAND) == ()
    assert box_findings(inventory(), None, COMMAND) == ()


def test_packages_that_are_missing_are_named_with_the_command_that_installs_them() -> None:
    [finding] = box_findings(inventory(0), python(), BuiltinJob())
    assert finding.cause == "missing-package"
    assert finding.sentence == "/opt/bin/python has no torch and no transformers and no accelerate."
    assert finding.remedies[0].title == "/opt/bin/python -m pip install torch transformers accelerate"
    assert "another Python" in finding.remedies[1].title


def test_a_command_needs_torch_alone() -> None:
    assert box_findings(inventory(0), python(torch="2.13.0+cpu"), COMMAND) == ()
    [finding] = box_findings(inventory(0), python(), COMMAND)
    assert finding.sentence == "/opt/bin/python has no torch."


def test_a_python_that_does_not_answer_says_why() -> None:
    dead = Interpreter("/opt/bin/python", problem="/opt/bin/python cannot be started.")
    [finding] = box_findings(inventory(0), dead, BuiltinJob())
    assert finding.sentence == "/opt/bin/python cannot be started."


def test_nothing_is_missing_before_the_job_is_known() -> None:
    assert box_findings(inventory(0), python(), None) == ()
