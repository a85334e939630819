"""Of identical launches at once, one starts; what was given up does not start later."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.faults.command_line import start_tuner, tuner
from tuner_tui.core.procfs import list_pids, read_command_line
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.start import start_supervisor
from tuner_tui.runs.store.folder import create_folder

LAUNCHES = 3


def test_of_identical_launches_at_once_one_starts(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    sleep = "import signal; signal.pause()"
    commands = [start_tuner(state, "run", "--detach", "--", sys.executable, "-c", sleep) for _ in range(LAUNCHES)]
    try:
        answers = [command.communicate(timeout=300) for command in commands]
        assert sorted(command.returncode for command in commands) == [0] + [4] * (LAUNCHES - 1), answers
        rows = json.loads(tuner(state, "ps", "--json").stdout)
        assert [row["run"] for row in rows] == ["r001"]
        refused = [err for command, (_, err) in zip(commands, answers, strict=True) if command.returncode == 4]
        assert all("is already running as r001" in err for err in refused)
    finally:
        for row in json.loads(tuner(state, "ps", "--json").stdout):
            if row["pid"] is not None:
                os.kill(row["pid"], signal.SIGKILL)


def test_a_supervisor_that_is_given_up_starts_nothing_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(3600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    folder = create_folder(tmp_path / "runs")
    with pytest.raises(LaunchError, match="did not start"):
        start_supervisor(folder, None, timeout_s=1.0)
    assert not [pid for pid in list_pids() if str(folder.path) in read_command_line(pid)]
