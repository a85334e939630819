"""The table of promises names tests that exist, and the groups files that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.faults.groups import GROUPS, count_groups

TABLE = Path(__file__).with_name("README.md")


def test_every_promise_names_a_test(repository: Path) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TABLE.read_text())
    assert len(named) > 30
    missing = [name for name in named if f"def {name[1]}(" not in (repository / name[0]).read_text()]
    assert missing == []


def test_every_group_has_its_files(repository: Path) -> None:
    missing = [path for files in GROUPS.values() for path in files if not (repository / path).is_file()]
    assert missing == []


def test_counts_by_group() -> None:
    ran = [
        ("tests/faults/test_fuzz.py::a", "passed"),
        ("tests/faults/test_fuzz.py::b", "failed"),
        ("tests/x.py::c", "passed"),
    ]
    (line,) = count_groups(ran)
    assert line.split() == ["fuzzer", "1", "passed", "1", "failed", "0", "error", "0", "skipped"]
