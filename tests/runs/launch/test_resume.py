"""Passing a checkpoint to a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner_tui.runs.launch.resume import accepts_checkpoint, with_checkpoint
from tuner_tui.settings.apply import AppliedCommand
from tuner_tui.settings.job import ApplyMode, BuiltinJob, CommandJob

HERE = Path("/out/checkpoint-10")
PLAIN = CommandJob(command=("x",))


def test_in_the_configuration_file() -> None:
    applied = with_checkpoint(AppliedCommand(("x",), "seed: 1\nresume_from_checkpoint: /old\n"), BuiltinJob(), HERE)
    assert applied.config_yaml == "seed: 1\nresume_from_checkpoint: /out/checkpoint-10\n"


def test_a_file_of_json_stays_json() -> None:
    applied = with_checkpoint(AppliedCommand(("x",), '{"seed": 1}'), BuiltinJob(), HERE)
    assert json.loads(applied.config_yaml or "") == {"seed": 1, "resume_from_checkpoint": "/out/checkpoint-10"}


def test_a_script_that_is_not_transformers_gets_no_such_key() -> None:
    job = CommandJob(command=("x", "my.yaml"), apply="yaml", dialect="own-script")
    applied = AppliedCommand(("x", "{config}"), "lr: 0.1\n")
    assert with_checkpoint(applied, job, HERE) is applied
    assert not accepts_checkpoint(job)


def test_as_an_argument() -> None:
    applied = with_checkpoint(AppliedCommand(("x",)), CommandJob(command=("x",), apply="hf-args"), HERE)
    assert applied.argv == ("x", "--resume_from_checkpoint", "/out/checkpoint-10")


@pytest.mark.parametrize(
    ("words", "without", "resumed"),
    [
        (("--resume", "{checkpoint}", "--x"), ("--x",), ("--resume", str(HERE), "--x")),
        (("--resume={checkpoint}",), (), (f"--resume={HERE}",)),
        (("ckpt={checkpoint}", "a=1"), ("a=1",), (f"ckpt={HERE}", "a=1")),
        (("--x=1", "{checkpoint}"), ("--x=1",), ("--x=1", str(HERE))),
        (("fit", "{checkpoint}"), ("fit",), ("fit", str(HERE))),
    ],
)
def test_where_the_command_says(words: tuple[str, ...], without: tuple[str, ...], resumed: tuple[str, ...]) -> None:
    job = CommandJob(command=("python", *words), apply="hf-args")
    applied = AppliedCommand(job.command)
    assert with_checkpoint(applied, job, None).argv == ("python", *without)
    assert with_checkpoint(applied, job, HERE).argv == ("python", *resumed)


@pytest.mark.parametrize(
    ("apply", "accepts"),
    [("yaml", True), ("hf-args", True), ("inject", False), ("placeholders", False), ("none", False)],
)
def test_whether_the_command_accepts_a_checkpoint(apply: ApplyMode, accepts: bool) -> None:
    assert accepts_checkpoint(CommandJob(command=("x",), apply=apply)) is accepts
    assert accepts_checkpoint(CommandJob(command=("x", "r={checkpoint}"), apply=apply))
    assert accepts_checkpoint(BuiltinJob())
