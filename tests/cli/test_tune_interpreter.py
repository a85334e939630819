"""`tuner-tui tune --interpreter`: what is no Python is refused before anything is begun."""

from __future__ import annotations

import sys

import pytest

from tests.cli.commands.test_run import Shell, shell
from tuner_tui.tuning.store import tunings_dir

__all__ = ["shell"]


@pytest.mark.parametrize("path", ["/no/python", "/bin/ls"])
def test_an_interpreter_that_is_no_python_is_refused(shell: Shell, path: str) -> None:
    done = shell("tune", "--interpreter", path, "--apply", "inject", "--", "sh", "-c", ":")
    assert done.returncode == 2, done.stderr
    assert path in done.stderr
    assert not tunings_dir(shell.environ).exists()


def test_a_tuning_that_is_gone_on_with_takes_no_other_interpreter(shell: Shell) -> None:
    done = shell("tune", "--resume", "t001", "--interpreter", sys.executable)
    assert done.returncode == 2
    assert "--resume continues a tuning unchanged" in done.stderr
