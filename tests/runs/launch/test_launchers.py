"""Commands started by torchrun and accelerate."""

from __future__ import annotations

import pytest

from tuner_tui.runs.launch.launchers import launcher_command

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4")
ACCELERATE = ("-m", "accelerate.commands.launch", "--num_processes=4")


def test_plain_is_as_it_is() -> None:
    assert launcher_command("plain", ["python", "train.py"], 4, "/py") == ("python", "train.py")


@pytest.mark.parametrize(
    ("argv", "python", "words"),
    [
        (["train.py", "--lr", "1"], "/py", ("train.py", "--lr", "1")),
        (["python3.11", "-u", "train.py", "-m", "x"], "python3.11", ("train.py", "-m", "x")),
        (["/env/bin/python", "-m", "pkg.train", "a"], "/env/bin/python", ("--module", "pkg.train", "a")),
        (["llamafactory-cli", "train"], "/py", ("--no-python", "llamafactory-cli", "train")),
        (["python", "-c", "pass"], "python", ("--no-python", "python", "-c", "pass")),
        (["python", "-X", "dev", "a.py"], "python", ("--no-python", "python", "-X", "dev", "a.py")),
    ],
)
def test_torchrun(argv: list[str], python: str, words: tuple[str, ...]) -> None:
    assert launcher_command("torchrun", argv, 4, "/py") == (python, *TORCHRUN, *words)


def test_accelerate() -> None:
    assert launcher_command("accelerate", ["train.py"], 4, "/py") == ("/py", *ACCELERATE, "train.py")
    assert launcher_command("accelerate", ["python", "-m", "pkg"], 4, "/py") == (
        "python",
        *ACCELERATE,
        "--module",
        "pkg",
    )
    assert launcher_command("accelerate", ["tool"], 4, "/py") == ("/py", *ACCELERATE, "--no_python", "tool")
