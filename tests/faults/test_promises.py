"""The table of promises names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TABLE = Path(__file__).with_name("README.md")


def test_every_promise_names_a_test(repository: Path) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TABLE.read_text())
    assert len(named) > 30
    missing = [name for name in named if f"def {name[1]}(" not in (repository / name[0]).read_text()]
    assert missing == []
