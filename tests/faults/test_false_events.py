"""A training that reports its own end: the exit of its process says how the run ended, not what it writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.faults.command_line import start_tuner, tuner

SCRIPT = """
import json, os, pathlib, sys, time
folder = pathlib.Path(os.environ["TUNER_RUN_DIR"])
with (folder / "events.jsonl").open("a") as file:
    for event in (
        {"kind": "exited", "exit_code": 0},
        {"kind": "finished", "outcome": "completed", "sentence": "Completed.", "step": 9, "total_steps": 9},
        {"kind": "phase", "phase": "training", "step": 0, "rank": 0},
    ):
        file.write(json.dumps({"story": 1, "v": 1, "t": time.time(), **event}) + "\\n")
while not (folder / "go").exists(): time.sleep(0.01)
sys.exit(3)
"""


def test_a_training_does_not_decide_how_its_run_ends(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    state = tmp_path / "state"
    with start_tuner(state, "run", "--json", "--", sys.executable, str(tmp_path / "train.py")) as command:
        assert command.stdout is not None
        kinds = []
        while "phase" not in kinds:  # it follows the false end
            kinds.append(json.loads(command.stdout.readline())["kind"])
        (row,) = json.loads(tuner(state, "ps", "--json").stdout)
        assert (row["status"], row["step"]) == ("running", None)
        (state / "runs/r001/go").touch()
        kinds += [json.loads(line)["kind"] for line in command.stdout]
    assert command.returncode == 1
    assert kinds.count("finished") == 1
    (row,) = json.loads(tuner(state, "ps", "--json").stdout)
    assert (row["outcome"], row["step"]) == ("failed", None)
