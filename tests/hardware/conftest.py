"""Processes that see the fake driver library."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.nvml.scenario import Scenario


class Box:
    """A machine whose driver follows a scenario, as a fresh Python process sees it."""

    def __init__(self, library: Path, scenario: Scenario, folder: Path) -> None:
        self.calls_file = folder / "nvml-calls"
        self.environment = scenario.environment(library, folder, self.calls_file)

    def python(self, script: str, timeout_s: float = 60) -> Any:
        """Runs `script`, which prints one JSON document last, and gives that."""
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def calls(self) -> set[str]:
        """The NVML functions that were called so far."""
        return {line.split()[0] for line in self.calls_file.read_text(encoding="ascii").splitlines()}


@pytest.fixture
def box(nvml_library: Path, tmp_path: Path) -> Callable[[Scenario], Box]:
    """A function from a scenario to a machine that has it."""
    return lambda scenario: Box(nvml_library, scenario, tmp_path)
