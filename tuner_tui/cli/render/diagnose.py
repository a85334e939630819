"""The text and the JSON document of `tuner-tui diagnose`: findings, remedies, and the settings seen in effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.verification import SettingCheck
from tuner_tui.core.text import format_observed

SEVERITY_MARKS = {"failed": "x", "warning": "!", "hint": "-"}
CHECK_MARKS = {"agrees": "✓", "differs": "✗", "unknown": "?"}


def finding_lines(findings: Sequence[Finding], checks: Sequence[SettingCheck] = ()) -> Iterator[list[str]]:
    """Yield the lines of each finding, or one sentence where there are no findings."""
    if not findings:
        failed = sum(check.verdict == "differs" for check in checks)
        one, many = "1 requested setting is", f"{failed} requested settings are"
        yield [f"{one if failed == 1 else many} not in effect:" if failed else "No problems found."]
    for finding in findings:
        where = f" ({finding.where})" if finding.where else ""
        head = f"{SEVERITY_MARKS[finding.severity]} {finding.cause}{where}, {finding.confidence}: {finding.sentence}"
        lines = [head, *(f"    {line}" for line in finding.evidence)]
        for number, remedy in enumerate(finding.remedies, 1):
            lines.append(f"  {number}. {remedy.title}: {remedy.why}")
            lines += [f"     expected: {remedy.expectation}"] if remedy.expectation else []
            lines += [f"     source: {remedy.source}"] if remedy.source else []
        yield lines


def check_lines(checks: Sequence[SettingCheck]) -> list[str]:
    """Return the settings asked for, marked by whether they were seen in effect; empty where none was."""
    asked = [check for check in checks if check.verdict != "not asked"]
    if not asked:
        return []
    width = max(len(check.name) for check in asked)
    return ["Requested settings:", *(_check_line(check, width) for check in asked)]


def _check_line(check: SettingCheck, width: int) -> str:
    seen = f" → {format_observed(check.seen)}" if check.verdict == "differs" else ""
    reason = f"  ({check.why})" if check.why else ""
    return f"  {CHECK_MARKS[check.verdict]} {check.name:<{width}}  {format_observed(check.asked)}{seen}{reason}"


def diagnosis_document(findings: Sequence[Finding], checks: Sequence[SettingCheck]) -> Mapping[str, Any]:
    """Return what `--json` prints: the findings and, for a run that reported them, the settings in effect."""
    document: dict[str, Any] = {"findings": [_finding_object(finding) for finding in findings]}
    return document | ({"in_effect": [asdict(check) for check in checks]} if checks else {})


def _finding_object(finding: Finding) -> Mapping[str, Any]:
    return {
        "cause": finding.cause,
        "where": finding.where,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "sentence": finding.sentence,
        "evidence": list(finding.evidence),
        "lost_share": finding.lost_share,
        "remedies": [_remedy_object(remedy) for remedy in finding.remedies],
    }


def _remedy_object(remedy: Remedy) -> Mapping[str, Any]:
    return {
        "title": remedy.title,
        "change": dict(remedy.change),
        "why": remedy.why,
        "effect": remedy.effect,
        "rests_on": remedy.rests_on,
        "peak": None if remedy.peak is None else {**asdict(remedy.peak), "verdict": remedy.peak.verdict},
        "source": remedy.source,
    }
