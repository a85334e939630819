"""Runs whose folder is on a file system that takes its time; FUSE makes one where it can be had."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.command_line import tuner

DELAY_S = "0.01"


@pytest.fixture
def slow_disk(tmp_path: Path, repository: Path) -> Iterator[Path]:
    """A file system of which each operation takes `DELAY_S`."""
    try:
        importlib.import_module("fuse")
    except (ImportError, OSError) as error:
        pytest.skip(f"fusepy or libfuse is missing: {error}")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("this machine gives no FUSE to this user")
    folder, place = tmp_path / "folder", tmp_path / "place"
    for made in (folder, place):
        made.mkdir()
    words = [sys.executable, "-m", "tests.faults.slow_file_system", str(folder), str(place), DELAY_S]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(words, cwd=repository, env=environment) as server:
        while not place.is_mount():
            assert server.poll() is None, "the file system ended"
        yield place
        subprocess.run(["umount", "-l", str(place)], check=True)
        server.kill()


def test_a_run_on_a_slow_disk(tmp_path: Path, slow_disk: Path) -> None:
    script, state = tmp_path / "train.py", slow_disk / "state"
    script.write_text("print('up', flush=True)\nimport signal\nwhile True: signal.pause()\n")
    launched = tuner(state, "run", "--detach", "--", sys.executable, str(script))
    assert launched.returncode == 0, launched
    stopped = tuner(state, "stop", "r001")
    assert (stopped.returncode, stopped.stdout) == (0, "Stopped on request.\n"), stopped
    (row,) = json.loads(tuner(state, "ps", "--json").stdout)
    assert row["outcome"] == "stopped"
