"""`tuner-tui replay`: a run that ended with a loss that is nan, and one that did not."""

from __future__ import annotations

import json
import sys

import pytest

from tests.cli.commands.test_run import Shell, shell
from tests.observer.observed_process import SCRIPTS

__all__ = ["shell"]

pytestmark = pytest.mark.train


def test_where_the_nan_of_a_run_comes_from(shell: Shell) -> None:
    folder = str(shell.home)
    shell("run", "--apply", "none", "--", sys.executable, str(SCRIPTS / "not_finite.py"), "sqrt", folder)
    answer = json.loads(shell("replay", "r001", "--json").stdout)
    assert (answer["step"], answer["compared"], answer["differs"]) == (8, 6, None)
    cause = answer["report"]["cause"]
    assert (answer["report"]["step"], cause["module"], cause["node"]) == (7, "layers.2", "SqrtBackward0")
    named = "In step 7, first not finite: layers.2, backward, aten.div (SqrtBackward0)"
    assert named in " ".join(shell("batches", "r001").stdout.split())
    shown = shell("diagnose", "r001").stdout
    assert named in shown
    assert "keep the input of this operator away from its limit" in shown
    for step in ("6", "7"):
        rows = shell("batches", "r001", "--step", step)
        assert rows.stdout.count(", 6 × 2 numbers of -") == (4 if step == "7" else 0)
    assert [line.split()[0] for line in shell("ps").stdout.splitlines()[1:]] == ["r001"]


def test_a_run_without_one(shell: Shell) -> None:
    shell("run", "--", sys.executable, shell.script("print('well')"))
    refused = shell("replay", "r001")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "All recorded losses of r001 are finite. `tuner-tui replay r001 --step N` replays a step" in refused.stderr
