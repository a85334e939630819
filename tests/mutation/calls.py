"""A pytest plugin that notes which functions of the package each test calls: `-p tests.mutation.calls`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGE = str(ROOT / "tuner_tui") + os.sep
CALLS: defaultdict[str, set[str]] = defaultdict(set)
"""By function (`path:first line`), the tests that called it."""
SECONDS: dict[str, float] = {}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    seen: set[tuple[str, int]] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            seen.add((code.co_filename, code.co_firstlineno))

    start = time.perf_counter()
    sys.setprofile(None)
    sys.settrace(note)
    yield
    sys.settrace(None)
    SECONDS[item.nodeid] = time.perf_counter() - start
    for file, line in seen:
        CALLS[f"{os.path.relpath(file, ROOT)}:{line}"].add(item.nodeid)


def pytest_sessionfinish() -> None:
    found = {"seconds": SECONDS, "calls": {function: sorted(tests) for function, tests in CALLS.items()}}
    Path(os.environ["MUTATION_CALLS"]).write_text(json.dumps(found))
