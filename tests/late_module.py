"""Heavy packages for tests that use them in their own process, imported by the first of these tests.

A test file that imports transformers at its top costs every worker that collects it seconds, half a gigabyte, and
slower forks. `conftest.py` runs all tests of files with a late module on one worker.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

one_worker = pytest.mark.xdist_group("late modules")


class LateModule:
    """Has the attributes of a module, which is imported when the first of them is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # which pytest and `issubclass` ask of every name in a test file
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)


def late_module(name: str) -> Any:
    """The module of that name; a file whose module belongs to a package that is not installed is skipped."""
    skip_without(name.partition(".")[0])
    return LateModule(name)


def skip_without(package: str) -> None:
    """Skip the test or the file without it; `importorskip` would import it, which takes seconds."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)
