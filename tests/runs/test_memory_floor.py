"""Memory limits: under which nothing can start, and above what the system allows."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from tests.runs.processes import Box, box
from tuner_tui.runs.announcement import announcement
from tuner_tui.runs.command import LaunchError
from tuner_tui.runs.memory_floor import FLOOR_BYTES, below_floor
from tuner_tui.runs.prepare import preview
from tuner_tui.runs.training import LIMITED
from tuner_tui.settings.job import BuiltinJob

__all__ = ["box"]
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def test_the_floor() -> None:
    assert below_floor(None, NO_GPU) is None
    assert below_floor(FLOOR_BYTES, NO_GPU) is None
    assert "300 MiB is too small" in (below_floor(300 * 2**20, NO_GPU) or "")


def test_the_built_in_job_is_refused_and_a_command_warned_of(box: Box) -> None:
    request = box.request("print(1)", memory_limit_bytes=300 * 2**20)
    request = replace(request, environ={**request.environ, **NO_GPU})
    assert dict(announcement(preview(request)))["Warning"].startswith("The memory limit of 300 MiB is too small")
    with pytest.raises(LaunchError, match="may never end with less"):
        preview(replace(request, job=BuiltinJob()))


def test_the_built_in_job_is_refused_where_its_data_is_not_there(box: Box) -> None:
    request = replace(box.request("print(1)"), job=BuiltinJob(data="nofile.csv"))
    with pytest.raises(LaunchError, match=r"The data nofile\.csv is not there"):
        preview(request)


@pytest.mark.parametrize(
    ("hard", "asked", "set_to"), [("2097152", 1 << 40, 1 << 31), ("unlimited", 1 << 80, (1 << 63) - 1)]
)
def test_a_limit_above_what_the_system_allows_is_the_systems(hard: str, asked: int, set_to: int) -> None:
    told = "import resource; print(*resource.getrlimit(resource.RLIMIT_DATA))"
    shell = ["sh", "-c", f'ulimit -d {hard} && exec "$0" "$@"', sys.executable, "-I", "-S", str(LIMITED), str(asked)]
    done = subprocess.run([*shell, sys.executable, "-c", told], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{set_to} {set_to}\n", "")
