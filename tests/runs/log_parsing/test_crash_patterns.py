"""Every row of `crashes.yaml` explains its examples and none of its counter-examples."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tuner_tui.runs.log_parsing.failures import parse_launcher_report
from tuner_tui.runs.log_parsing.fatal_failure import (
    FILE,
    CrashPattern,
    crash_table,
    find_fatal_failure,
)
from tuner_tui.runs.log_parsing.lines import parse_lines

DOCUMENT: dict[str, list[dict[str, Any]]] = yaml.load(FILE.read_text("utf-8"), yaml.CSafeLoader)
ROWS = [
    *zip(DOCUMENT["messages"], crash_table().messages, strict=True),
    *zip(DOCUMENT["frames"], crash_table().frames, strict=True),
]


def texts(field: str) -> list[Any]:
    """The texts of a field, each with the pattern of its row."""
    return [
        pytest.param(text, pattern, id=f"{row['cause']}: {text.strip()[:60]!r}")
        for row, pattern in ROWS
        for text in ([row[field]] if isinstance(row.get(field), str) else row.get(field, []))
    ]


def explained_by(text: str) -> CrashPattern | None:
    """The pattern that explains an output; None if nothing failed, or nothing known."""
    lines = parse_lines(text.split("\n"))
    match = find_fatal_failure(lines, parse_launcher_report(lines), None)
    return None if match is None else match.pattern


@pytest.mark.parametrize(("text", "pattern"), texts("example"))
def test_an_example_is_explained_by_its_row(text: str, pattern: CrashPattern) -> None:
    assert explained_by(text) is pattern


@pytest.mark.parametrize(("text", "pattern"), texts("counter_example"))
def test_a_counter_example_is_not(text: str, pattern: CrashPattern) -> None:
    assert explained_by(text) is not pattern
