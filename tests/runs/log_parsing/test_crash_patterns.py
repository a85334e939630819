"""Every row of `crashes.yaml` explains its examples and none of its counter-examples."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tuner_tui.runs.log_parsing.crash_table import FILE, CrashPattern, crash_table
from tuner_tui.runs.log_parsing.failures import parse_launcher_report
from tuner_tui.runs.log_parsing.fatal_failure import find_fatal_failure
from tuner_tui.runs.log_parsing.lines import parse_lines

DOCUMENT: dict[str, list[dict[str, Any]]] = yaml.load(FILE.read_text("utf-8"), yaml.CSafeLoader)
ROWS = [
    *zip(DOCUMENT["messages"], crash_table().messages, strict=True),
    *zip(DOCUMENT["frames"], crash_table().frames, strict=True),
    *((row, crash_table().classes[row["classes"][0]]) for row in DOCUMENT["classes"]),
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


@pytest.mark.parametrize(
    ("text", "cause", "topic"),
    [
        ("absl.flags._exceptions.IllegalFlagValueError: a", "bad-arguments", "configuration"),
        ("ray.exceptions.ActorUnavailableError: b", "worker-crash", "ray-logs"),
        ("TabError: c", "program-error", "syntax"),
        ("FileExistsError: [Errno 28] No space left on device", "disk-full", None),  # words say more
        ("FloatingPointError: unrecognized arguments: --x", "nan", None),  # but for a class that leaves no doubt
    ],
)
def test_a_class_is_known_by_the_classes_above_it(text: str, cause: str, topic: str | None) -> None:
    pattern = explained_by(text)
    assert pattern is not None
    assert (pattern.cause, pattern.topic) == (cause, topic)


def test_every_class_above_another_has_a_row() -> None:
    rows, bases = crash_table().classes, crash_table().bases
    assert [base for base in bases.values() if base not in rows and base not in bases] == []


def test_no_class_is_above_itself() -> None:
    bases = crash_table().bases
    for name in bases:
        above = [name]
        while (base := bases.get(above[-1])) is not None:
            assert base not in above
            above.append(base)


def test_no_pattern_looks_ahead_from_every_position() -> None:
    # With a long line, the time would grow with the square of its length.
    looks_ahead = re.compile(r"(?:^|\||\()(?:\(\?[a-z]+\))?\(\?=(?:\.|\[\\s\\S\])\*")
    patterns = [regex.pattern for pattern in crash_table().messages for regex in pattern.regexes]
    assert list(filter(looks_ahead.search, patterns)) == []
