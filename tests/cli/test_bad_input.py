"""What the command line refuses: one sentence on standard error, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands.test_run import Shell, shell
from tuner_tui.core.files import read_data_file

__all__ = ["shell"]

REFUSED = read_data_file(Path(__file__).with_name("bad_input.yaml"))


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: " ".join(row["words"]) or "no words")
def test_bad_input_is_one_sentence_and_2(shell: Shell, row: dict[str, str]) -> None:
    done = shell(*(word.replace("{}", str(shell.home)) for word in row["words"]))
    assert (done.returncode, done.stdout) == (2, "")
    assert row["say"].replace("{}", str(shell.home)) in done.stderr
    assert "Traceback" not in done.stderr
