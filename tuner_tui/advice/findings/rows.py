"""The findings of a run that is alive, as rows of `findings.yaml` say them, which also say when each is reported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner_tui.advice.finding import Finding, FindingSeverity, Remedy
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.core.files import read_data_file
from tuner_tui.runs.log_parsing.lines import Confidence

FILE = Path(__file__).with_name("findings.yaml")


def finding(
    cause: str,
    situation: Situation | None,
    *evidence: str,
    row: str | None = None,
    where: str | None = None,
    severity: FindingSeverity | None = None,
    confidence: Confidence | None = None,
    lost_share: float | None = None,
    remedies: tuple[Remedy, ...] | None = None,
    ladder: str | None = None,
    **figures: object,
) -> Finding:
    """The finding of `row`, the cause's own by default, with `figures` in its placeholders.

    Its remedies are those of the cause for `ladder`, `where` by default; without a situation none but those given.
    """
    text = read_data_file(FILE)[row or cause]
    where = where or (text["where"].format(**figures) if "where" in text else None)
    if remedies is None:
        remedies = () if situation is None else remedies_for(cause, situation, ladder or where)
    return Finding(
        cause=cause,
        severity=severity or text["severity"],
        sentence=text["sentence"].format(**figures),
        evidence=evidence,
        confidence=confidence or text["confidence"],
        where=where,
        remedies=remedies,
        lost_share=lost_share,
    )


def warning_figures(row: str, situation: Situation) -> Mapping[str, Any] | None:
    """The groups of the warning in the log that `row` is of; None without it, or where something explains it."""
    text, settings = read_data_file(FILE)[row], situation.settings
    log = "\n".join((*situation.log, "" if settings is None else settings.precision))
    explained = "unless" in text and re.search(text["unless"], log)
    warning = None if explained else re.search(text["warning"], log)
    return None if warning is None else warning.groupdict()


def warned(row: str, situation: Situation) -> Finding | None:
    figures, text = warning_figures(row, situation), read_data_file(FILE)[row]
    if figures is None:
        return None
    evidence = (part.format(**figures) for part in text["evidence"])
    return finding(text.get("of", row), situation, *evidence, row=row, **figures)
