"""Commands in a folder that is gone, and of files that have no end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.faults.command_line import tuner


def test_in_a_folder_that_is_gone(tmp_path: Path) -> None:
    command = f"mkdir gone && cd gone && rmdir ../gone && exec {sys.executable} -m tuner_tui run --detach -- true"
    ended = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env={**os.environ, "TUNER_STATE_DIR": str(tmp_path / "state")},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == "The current folder no longer exists; change to another one."


def test_a_device_is_not_read_to_its_end(tmp_path: Path) -> None:
    ended = tuner(tmp_path / "state", "diagnose", "/dev/zero")
    assert ended.returncode == 2
    assert "A device has no end" in ended.stderr


def test_a_command_that_is_no_text(tmp_path: Path) -> None:
    ended = tuner(tmp_path / "state", "run", "--", sys.executable, b"\xff.py")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "not valid UTF-8" in ended.stderr
