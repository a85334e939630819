"""The fuzzer of run folders for a moment; `python -m tests.faults.fuzz --minutes 30` searches for longer."""

from __future__ import annotations

import pytest

from tests.faults.fuzz import search_runs


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.full)])
def test_nothing_that_happens_to_runs_breaks_a_promise(number: int) -> None:
    search_runs(number, steps=12, examples=3)
