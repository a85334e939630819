"""A trainer whose clock is a day behind or ahead, as on another machine of a cluster: true states and exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.faults.command_line import tuner

DAY_S = 86_400.0
SCRIPT = """
import json, os, pathlib, sys, time
folder, shift, code = pathlib.Path(os.environ["TUNER_RUN_DIR"]), float(sys.argv[1]), int(sys.argv[2])
def say(**event):
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps({"v": 1, "t": time.time() + shift, "rank": 0, **event}) + "\\n")
say(story=1, kind="started", pid=os.getpid())
say(story=1, kind="plan", total_steps=40)
say(story=1, kind="phase", phase="training", step=0)
for step in range(1, 21):
    say(kind="steps", step=step, own_steps=step, samples=step, train_s=step * 0.05)
    time.sleep(0.05)
for step in range(21, 41):
    say(kind="steps", step=step, own_steps=step, samples=step, train_s=step * 0.05)
if code:
    say(story=1, kind="raised", type="ValueError", message="no", step=40)
else:
    say(story=1, kind="ended", step=40)
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("shift", "code", "outcome"),
    [(-DAY_S, 3, "failed"), pytest.param(DAY_S, 0, "completed", marks=pytest.mark.full)],
)
def test_the_outcome_and_the_exit_code_are_true(tmp_path: Path, shift: float, code: int, outcome: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    state = tmp_path / "state"
    ran = tuner(state, "run", "--", sys.executable, str(tmp_path / "train.py"), str(shift), str(code))
    assert ran.returncode == (1 if code else 0), ran
    (row,) = json.loads(tuner(state, "ps", "--json").stdout)
    assert (row["outcome"], row["step"], row["total_steps"]) == (outcome, 40, 40)
    assert tuner(state, "logs", "-f", "--events", "r001").returncode == ran.returncode
