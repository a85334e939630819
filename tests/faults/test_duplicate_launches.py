"""Of identical launches at once, one starts."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from tests.faults.command_line import start_tuner, tuner

LAUNCHES = 8


def test_of_eight_identical_launches_at_once_one_starts(tmp_path: Path) -> None:
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
        assert all("already runs as r001" in err for err in refused)
    finally:
        for row in json.loads(tuner(state, "ps", "--json").stdout):
            if row["pid"] is not None:
                os.kill(row["pid"], signal.SIGKILL)
