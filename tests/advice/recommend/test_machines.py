"""The file of recommendations for twenty machines is up to date, and holds nothing that does not fit."""

from __future__ import annotations

from tests.advice import machines


def test_the_file_is_what_is_recommended() -> None:
    """`python -m tests.advice.machines` writes it; read the difference before you commit it."""
    assert machines.FILE.read_text("utf-8") == machines.text()


def test_what_does_not_fit_is_said() -> None:
    """A section with a line that is not `fits` has a note: not one sample fits, or how much memory is here."""
    for section in machines.FILE.read_text("utf-8").split("\n## ")[1:]:
        lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
        doubtful = [line for line in lines if not line.endswith(", fits |")]
        assert len(lines) == len(machines.MODELS)
        notes = [line for line in section.splitlines() if "not even one sample" in line or "this machine has" in line]
        assert len([line for line in doubtful if "too large" in line]) <= len(notes), section
        assert len(doubtful) <= len(notes) + 1, section
