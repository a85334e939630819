"""Outputs of crashes that were provoked for real; `provoke.py` made them. A file's name says cause and place."""

from __future__ import annotations

from pathlib import Path

from tests.advice.crash.corpus.case import Case

FOLDER = Path(__file__).parent / "provoked"


def case(path: Path) -> Case:
    """The case of one output: `cause.where.what.txt`; the cause `healthy` stands for none."""
    cause, where, _ = path.stem.split(".")
    return Case(path.stem, path.read_text(), None if cause == "healthy" else cause, where or None)


EVERY = tuple(case(path) for path in sorted(FOLDER.glob("*.txt")))
CASES = tuple(each for each in EVERY if each.cause is not None)
HEALTHY = tuple(each for each in EVERY if each.cause is None)
