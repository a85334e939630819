"""`tuner-tui diagnose RUN|FILE|-`: what went wrong or holds a training back, and what to change."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from errno import ENOENT
from pathlib import Path
from typing import Any

import typer
from msgspec.structs import replace

from tuner_tui.advice.diagnose import diagnose as diagnose_situation
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.settings_check import SettingCheck, verify_settings
from tuner_tui.advice.situation import Situation, situation_of_run
from tuner_tui.cli.console import fail, find_run_or_exit, print_report
from tuner_tui.core.json_struct import to_json
from tuner_tui.core.numbered_folders import FolderNotFoundError
from tuner_tui.core.text import format_observed, join_paragraphs
from tuner_tui.inspection.faithful_resume import ResumeCheck
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.log_parsing import lines
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import RunFolder, find_run, runs_dir
from tuner_tui.runs.store.remedy_outcomes import RemedyOutcome, read_outcomes
from tuner_tui.tuning.followed_remedies import follow_remedies

SEVERITY_MARKS = {"failed": "✗", "warning": "!", "hint": "-"}
CHECK_MARKS = {"agrees": "✓", "differs": "✗", "unknown": "?"}


def finding_lines(findings: Sequence[Finding], checks: Sequence[SettingCheck] = ()) -> Iterator[list[str]]:
    """Yield the lines of each finding, or one sentence where there are no findings."""
    if not findings:
        failed = sum(check.verdict == "differs" for check in checks)
        singular, plural = "1 requested setting is", f"{failed} requested settings are"
        yield [f"{singular if failed == 1 else plural} not in effect:" if failed else "No problems found."]
    for finding in findings:
        lines = [f"{SEVERITY_MARKS[finding.severity]} {finding.headline}"]
        lines += [f"    {line}" for line in finding.evidence]
        named = () if finding.cause == "unknown" else (finding.cause, finding.where)
        lines += ["    finding: " + ", ".join(filter(None, named))] if named else []
        for number, remedy in enumerate(finding.remedies, 1):
            lines += [f"  {number}. {remedy.title}", f"     {remedy.why}"]
            lines += [f"     expected: {remedy.expectation}"] if remedy.expectation else []
            lines += [f"     source: {remedy.source}"] if remedy.source else []
        yield lines


def check_lines(checks: Sequence[SettingCheck]) -> list[str]:
    """Return the settings asked for, marked by whether they were seen in effect; empty where none was."""
    asked = [check for check in checks if check.verdict != "not asked"]
    if not asked:
        return []
    width = max(len(check.name) for check in asked)
    lines = ["Requested settings:"]
    for check in asked:
        seen = f" → {format_observed(check.seen)}" if check.verdict == "differs" else ""
        reason = f"  ({check.why})" if check.why else ""
        mark = CHECK_MARKS[check.verdict]
        lines.append(f"  {mark} {check.name:<{width}}  {format_observed(check.asked)}{seen}{reason}")
    return lines


def diagnosis_document(
    findings: Sequence[Finding],
    checks: Sequence[SettingCheck],
    outcome: RemedyOutcome | None = None,
    resume: ResumeCheck | None = None,
) -> Mapping[str, Any]:
    """Return what `--json` prints: the findings and, for a run that has them, settings in effect and its remedy."""
    document: dict[str, Any] = {"findings": to_json(findings, whole=True)}
    for finding, data in zip(findings, document["findings"], strict=True):
        for remedy, item in zip(finding.remedies, data["remedies"], strict=True):
            if remedy.peak is not None:
                item["peak"]["verdict"] = remedy.peak.verdict
    resumed = {"resume": resume_document(resume)} if resume else {}
    return document | ({"in_effect": checks} if checks else {}) | ({"remedy": outcome} if outcome else {}) | resumed


def resume_document(check: ResumeCheck) -> dict[str, Any]:
    """Return what `--json` prints of a run that goes on from a checkpoint."""
    return {"verdict": check.verdict, "sentence": check.sentence, **to_json(check)}


def diagnose(
    source: str = typer.Argument("", metavar="RUN|FILE|-", help="A run, a log file, - for stdin; else the newest run."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> Sequence[Finding]:
    """Show what failed or slows a run, and how to fix it."""
    source = source or str(find_run_or_exit(None).path)
    try:
        situation = read_situation(source)
    except OSError as error:
        fail(f"{source} cannot be read: {error.strerror or error}.")
    except FolderNotFoundError as error:
        fail(f"{error} There is no file of that name either.")
    if situation.state == RunState() and not any(line.strip() for line in situation.log):
        fail(f"{'The input' if source == '-' else source} is empty.")
    outcome = None if situation.job is None else follow_remedies(_folder_of(source))
    situation = situation if outcome is None else replace(situation, outcomes=read_outcomes())
    findings, checks = diagnose_situation(situation), verify_settings(situation)
    followed = [f"Remedy {outcome.statement}."] if outcome else []
    if situation.resume is not None and not situation.resume.mismatches:
        followed.append(f"{situation.resume.sentence}.")
    document = diagnosis_document(findings, checks, outcome, situation.resume)
    print_report(document, as_json, join_paragraphs([*finding_lines(findings, checks), followed, check_lines(checks)]))
    return findings


def read_situation(source: str) -> Situation:
    """Read a run folder, an output file or standard input. Raises `OSError` and `FolderNotFoundError`."""
    if source == "-":
        return Situation(RunState(), time.time(), log=lines.read_stream_head_and_tail(sys.stdin.buffer))
    path = Path(source)
    if path.suffix == ".py" and path.exists():
        fail(f"{source} is a script, not a log: `tuner-tui run -- python {source}` runs and watches it.")
    if path.exists() and not path.is_dir():
        return Situation(RunState(), time.time(), log=lines.read_head_and_tail(path, any_kind=True))
    folder = _folder_of(source)
    status = read_status(folder)
    if not any(file.exists() for file in (folder.record, folder.events, folder.output_log)):
        raise FileNotFoundError(ENOENT, status.sentence.rstrip(".") if status.outcome else "the run folder is empty")
    if status.kind == "waiting":
        fail(f"{folder.id} has not started. {status.sentence}")
    return situation_of_run(folder)


def _folder_of(source: str) -> RunFolder:
    return RunFolder(Path(source).resolve()) if Path(source).is_dir() else find_run(source, runs_dir())
