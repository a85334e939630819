"""`tuner-tui diagnose RUN|FILE|-`: what went wrong or holds a training back, and what to change."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from errno import ENOENT
from pathlib import Path
from typing import Any

import typer

from tuner_tui.advice.diagnose import diagnose as diagnose_situation
from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.situation import Situation, situation_of_run
from tuner_tui.advice.verification import SettingCheck, format_setting, verify_settings
from tuner_tui.cli.console import fail, print_json, print_text
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.log_parsing import lines
from tuner_tui.runs.store.folder import RunFolder, RunNotFoundError, find_run, runs_dir

VERDICTS = {"agrees": "✓", "differs": "✗", "unknown": "?"}
MARKS = {"failed": "x", "warning": "!", "hint": "-"}


def register(app: typer.Typer) -> None:
    """Adds `diagnose`."""
    app.command("diagnose")(diagnose)


def diagnose(
    source: str = typer.Argument(metavar="RUN|FILE|-", help="A run, an output file, or - for standard input."),
    as_json: bool = typer.Option(False, "--json", help="One JSON document on standard output."),
) -> None:
    """What went wrong or holds the training back, and what to change. Nothing found is an answer too."""
    try:
        situation = read_situation(source)
    except (OSError, RunNotFoundError) as error:
        fail(f"tuner-tui diagnose: {_sentence(error, source)}")
    if situation.state == RunState() and not any(line.strip() for line in situation.log):
        fail(f"tuner-tui diagnose: {'the input' if source == '-' else source} is empty.")
    findings, marks = diagnose_situation(situation), verify_settings(situation)
    if as_json:
        print_json(as_document(findings, marks))
    else:
        print_text("\n\n".join(filter(None, [as_text(findings), checklist(marks)])))


def read_situation(source: str) -> Situation:
    """What there is to look at: an output alone, or all that a run folder holds."""
    if source == "-":
        return Situation(RunState(), time.time(), log=lines.read_stream_head_and_tail(sys.stdin.buffer))
    path = Path(source)
    if path.exists() and not path.is_dir():
        return Situation(RunState(), time.time(), log=lines.read_head_and_tail(path))
    folder = RunFolder(path.resolve()) if path.is_dir() else find_run(source, runs_dir())
    if not any(file.exists() for file in (folder.record, folder.events, folder.output_log)):
        raise FileNotFoundError(ENOENT, "nothing of a run is in it")
    return situation_of_run(folder)


def as_document(findings: tuple[Finding, ...], marks: tuple[SettingCheck, ...] = ()) -> Mapping[str, Any]:
    """The findings as `--json` prints them, and, for a run that told of it, what is in effect."""
    found: dict[str, Any] = {"findings": [_as_object(finding) for finding in findings]}
    return found | ({"in_effect": [asdict(mark) for mark in marks]} if marks else {})


def checklist(marks: tuple[SettingCheck, ...]) -> str:
    """What was asked for and seen in effect, with marks; empty where nothing was seen."""
    asked = [mark for mark in marks if mark.verdict != "not asked"]
    if not asked:
        return ""
    width = max(len(mark.name) for mark in asked)
    lines = [
        f"  {VERDICTS[mark.verdict]} {mark.name:<{width}}  {format_setting(mark.asked)}"
        + (f" → {format_setting(mark.seen)}" if mark.verdict == "differs" else "")
        + (f"  ({mark.why})" if mark.why else "")
        for mark in asked
    ]
    return "\n".join(["Asked for, and in effect:", *lines])


def as_text(findings: tuple[Finding, ...]) -> str:
    """The findings for a person."""
    if not findings:
        return "Nothing wrong was found."
    return "\n\n".join("\n".join(_text_lines(finding)) for finding in findings)


def _as_object(finding: Finding) -> Mapping[str, Any]:
    return {
        "cause": finding.cause,
        "where": finding.where,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "sentence": finding.sentence,
        "evidence": list(finding.evidence),
        "lost_share": finding.lost_share,
        "remedies": [_remedy(remedy) for remedy in finding.remedies],
    }


def _remedy(remedy: Remedy) -> Mapping[str, Any]:
    return {
        "title": remedy.title,
        "change": dict(remedy.change),
        "why": remedy.why,
        "effect": remedy.effect,
        "rests_on": remedy.rests_on,
        "source": remedy.source,
    }


def _text_lines(finding: Finding) -> list[str]:
    where = f" ({finding.where})" if finding.where else ""
    lines = [f"{MARKS[finding.severity]} {finding.cause}{where}, {finding.confidence}: {finding.sentence}"]
    lines += [f"    {line}" for line in finding.evidence]
    for number, remedy in enumerate(finding.remedies, 1):
        lines.append(f"  {number}. {remedy.title}: {remedy.why}")
        lines += [f"     expected: {remedy.effect}"] if remedy.effect else []
        lines += [f"     source: {remedy.source}"] if remedy.source else []
    return lines


def _sentence(error: OSError | RunNotFoundError, source: str) -> str:
    if isinstance(error, OSError):
        return f"{source} cannot be read: {error.strerror or error}."
    return f"{error} A file of that name does not exist either."
