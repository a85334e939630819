"""The memory of an interpreter that has imported torch: measured once, cached, and unknown if it cannot be measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.late_module import skip_without
from tuner_tui.core.units import MIB
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.memory.trace import import_footprint

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.train
def test_it_is_asked_once() -> None:
    skip_without("datasets")
    python = Interpreter(sys.executable, packages={"torch": "2.13.0"})
    assert import_footprint(python, 2, cached_only=True) is None
    footprint = import_footprint(python, 2)
    assert footprint is not None
    assert footprint.private_bytes > footprint.resident_bytes > 200 * MIB
    assert import_footprint(python, 2, cached_only=True) == footprint
    assert import_footprint(python, 64, cached_only=True) is None


def test_a_python_that_cannot_say_leaves_it_unknown(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    assert import_footprint(Interpreter(str(python)), 2) is None
