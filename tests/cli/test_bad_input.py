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


def test_a_file_that_is_no_training_is_not_called_missing(shell: Shell) -> None:
    merge = shell.home / "merge.yml"
    merge.write_text("merge_method: ties\nmodels: [{model: acme/a}, {model: acme/b}]\n")
    done = shell(str(merge))
    assert done.returncode == 2
    assert done.stderr.startswith(f"{merge}: ")
    assert "is not a command" not in done.stderr
