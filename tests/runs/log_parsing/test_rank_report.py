"""What an output says of its ranks; the whole diagnosis is asked, since that is what a person reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tuner_tui.advice.crash.findings import crash_findings
from tuner_tui.advice.situation import Situation
from tuner_tui.core.files import read_data_file
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Exited, Finished
from tuner_tui.runs.log_parsing.failures import parse_launcher_report
from tuner_tui.runs.log_parsing.lines import parse_lines

CASES = read_data_file(Path(__file__).with_name("ranks.yaml"))
ON_RANKS = re.compile(r"(?:first failed|raised on|ranks?|which rank|no rank) ")
FAILED = RunState(exited=Exited(t=1.0, exit_code=1), finished=Finished(t=1.0, outcome="failed", sentence=""))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_evidence_on_ranks(case: dict[str, Any]) -> None:
    situation = Situation(FAILED, 2.0, log=tuple(case["log"].splitlines()))
    evidence = [line for finding in crash_findings(situation) for line in finding.evidence]
    assert [line for line in evidence if ON_RANKS.match(line)] == case["evidence"]


def test_a_rank_on_its_host_is_not_the_rank_of_the_training() -> None:
    report = parse_launcher_report(parse_lines(["failed (exitcode: -9) local_rank: 3 (pid: 407727) of binary: python"]))
    assert (report.rank, report.local_rank, report.signal) == (None, 3, 9)
