"""Faults that end a real training, each named rightly; the bench has those that only slow it down."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.fault_benchmark import FAULTS, Fault, can_mount, judge, start
from tests.faults.fault_benchmark import Found as First
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.situation import situation_of_run
from tuner_tui.core.file_locks import wait_unlocked

FATAL = ("memory-limit", "shm-limit", "killed-worker", "killed-trainer", "missing-package")


@pytest.mark.train
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=() if fault.name == "missing-package" else pytest.mark.full, id=fault.name)
        for fault in FAULTS
        if fault.name in FATAL
    ],
)
def test_a_fault_that_ends_a_training_is_named(fault: Fault, tmp_path: Path) -> None:
    if fault.within and not can_mount():
        pytest.skip("no right to mount a file system")
    folder = start(fault, tmp_path)
    wait_unlocked(folder.lock)
    findings = diagnose(situation_of_run(folder))
    assert findings, folder.output_log.read_text()
    assert judge(fault, First(findings[0].cause, findings[0].confidence)), findings[0]
