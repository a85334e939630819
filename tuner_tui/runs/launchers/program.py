"""What a command runs: a script, a module or a program, and the Python that runs it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

PYTHON = re.compile(r"python[\d.]*")
SWITCHES = re.compile(r"-[bBdEiIOPqsSuvVx]+")


@dataclass(frozen=True, slots=True)
class Program:
    """`words` are the script, module or program, and its arguments. A launcher brings its own Python switches."""

    kind: Literal["script", "module", "program"]
    words: tuple[str, ...]
    python: str


def program_of(argv: Sequence[str], python: str) -> Program:
    """Take `python -u train.py …`, `python -m package …`, `train.py …` or `some-program …` apart."""
    words = tuple(argv)
    if not PYTHON.fullmatch(PurePath(words[0]).name):
        return Program("script" if words[0].endswith(".py") else "program", words, python)
    rest = list(words[1:])
    while rest and SWITCHES.fullmatch(rest[0]):
        rest.pop(0)
    if len(rest) > 1 and rest[0] == "-m":
        return Program("module", tuple(rest[1:]), words[0])
    if rest and not rest[0].startswith("-"):
        return Program("script", tuple(rest), words[0])
    return Program("program", words, words[0])  # python -c, -W, -X: started as it stands
