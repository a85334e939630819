"""The Python that trains a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_tui.runs.launch.launchers import training_python
from tuner_tui.settings.job import BuiltinJob, CommandJob


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with a Python of its own, as `venv` makes one, and programs that pip wrote into it."""
    folder = tmp_path / "env" / "bin"
    folder.mkdir(parents=True)
    for name in ("python", "python3"):
        (folder / name).symlink_to("/bin/sh")
    long = f"#!/bin/sh\n'''exec' {folder}/python \"$0\" \"$@\"\n' '''\n"
    for name, text in {"trl": f"#!{folder}/python3\n", "torchrun": long, "own": "#!/usr/bin/env python\n"}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("command", "python"),
    [
        ("{}/python train.py", "python"),
        ("env A=1 B=2 python3 -u train.py", "python3"),
        ("./env/bin/python train.py", "python"),
        ("trl sft", "python3"),
        ("torchrun --nproc-per-node 2 train.py", "python"),
        ("own train.yaml", "python"),
    ],
)
def test_the_command_names_it(tmp_path: Path, environment: Path, command: str, python: str) -> None:
    job = CommandJob(command=tuple(command.format(environment).split()))
    result = training_python(job, {"PATH": str(environment)}, tmp_path)
    assert result.absolute() == environment / python


@pytest.mark.parametrize("command", ["/bin/sh run.sh", "no-such-program", "/no/such/python train.py", "env"])
def test_a_command_that_names_none_is_the_shells(tmp_path: Path, environment: Path, command: str) -> None:
    job = CommandJob(command=tuple(command.split()))
    assert training_python(job, {"VIRTUAL_ENV": str(environment.parent)}, tmp_path) == environment / "python"


def test_what_the_job_says_counts_first(tmp_path: Path, environment: Path) -> None:
    job = CommandJob(command=(str(environment / "python"), "train.py"), interpreter="/other/python")
    assert training_python(job, {}, tmp_path) == Path("/other/python")
    assert training_python(BuiltinJob(interpreter="/other/python"), {}, tmp_path) == Path("/other/python")
