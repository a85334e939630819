"""Memory limits under which nothing can start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.runs.processes import Box, box
from tuner_tui.runs.announcement import announcement
from tuner_tui.runs.command import LaunchError
from tuner_tui.runs.memory_floor import FLOOR_BYTES, below_floor
from tuner_tui.runs.prepare import preview
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
