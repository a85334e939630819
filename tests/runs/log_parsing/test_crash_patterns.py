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


def texts(field: str, row: dict[str, Any]) -> list[str]:
    """The texts of a field of a row, which holds one or a list."""
    value = row.get(field, [])
    return [value] if isinstance(value, str) else value


def explained_by(text: str) -> CrashPattern | None:
    """The pattern that explains an output; None if nothing failed, or nothing known."""
    lines = parse_lines(text.split("\n"))
    match = find_fatal_failure(lines, parse_launcher_report(lines), None)
    return None if match is None else match.pattern


@pytest.mark.parametrize(("row", "pattern"), [pytest.param(*pair, id=pair[0]["cause"]) for pair in ROWS])
def test_a_row_explains_its_examples_and_no_counter_example(row: dict[str, Any], pattern: CrashPattern) -> None:
    assert [text for text in texts("example", row) if explained_by(text) is not pattern] == []
    assert [text for text in texts("counter_example", row) if explained_by(text) is pattern] == []


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
