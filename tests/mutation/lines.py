"""A pytest plugin that notes which lines of the package each test that passes executes: `-p tests.mutation.lines`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGE = str(ROOT / "tuner_tui") + os.sep
MOST_TRACED_S = 5
"""Lines that a test reaches later than this are not noted: other tests notice their changes sooner."""
NOTED: dict[str, dict[str, Any]] = {}
"""By test, its `seconds` and its `lines` by file."""
FAILED: set[str] = set()


class Tracer:
    """Collects the executed lines of the package, as a trace function."""

    def __init__(self) -> None:
        self.lines: dict[CodeType, set[int]] = {}
        self._end = time.perf_counter() + MOST_TRACED_S

    def __call__(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return None
        if time.perf_counter() > self._end:
            sys.settrace(None)
            return None
        lines = self.lines.setdefault(code, set())

        def note(inner: FrameType, event: str, _: Any) -> Callable[..., Any]:
            lines.add(inner.f_lineno)
            return note

        return note

    def by_file(self) -> dict[str, list[int]]:
        """The executed lines by path."""
        collected: dict[str, set[int]] = {}
        for code, lines in self.lines.items():
            collected.setdefault(os.path.relpath(code.co_filename, ROOT), set()).update(lines)
        return {path: sorted(lines) for path, lines in collected.items()}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    tracer, start = Tracer(), time.perf_counter()
    sys.settrace(tracer)
    yield
    sys.settrace(None)
    NOTED[item.nodeid] = {"seconds": time.perf_counter() - start, "lines": tracer.by_file()}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not report.passed:
        FAILED.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Each process of a parallel run writes a file of its own."""
    passed = {test: noted for test, noted in NOTED.items() if test not in FAILED}
    Path(os.environ["MUTATION_LINES"], f"{os.getpid()}.json").write_text(json.dumps(passed))
