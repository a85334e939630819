"""From a situation to its findings: what failed first, then what slows the run down, worst first."""

from __future__ import annotations

from tuner_tui.advice.crash import crash_findings
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.rules.data_wait import data_wait
from tuner_tui.advice.rules.rule import Rule
from tuner_tui.advice.rules.stall import stalled
from tuner_tui.advice.situation import Situation

RULES: tuple[Rule, ...] = (stalled, data_wait)
"""Measured breakdown of the step first, thresholds on single figures after it; order is rank within one severity."""

RANK = {"failed": 0, "warning": 1, "hint": 2}


def diagnose(situation: Situation) -> tuple[Finding, ...]:
    """Every finding of this moment, worst first; empty where nothing is wrong. Pure: feed it through `Steadiness`."""
    live = [finding for rule in RULES if (finding := rule(situation)) is not None]
    return tuple(sorted((*crash_findings(situation), *live), key=lambda finding: RANK[finding.severity]))
