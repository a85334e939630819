"""The house keeps its shape: what a process must not import, and how large a room may grow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LONGEST_FILE = 300


def modules_after(statement: str) -> set[str]:
    """Top-level modules a fresh interpreter holds after `statement`."""
    script = f"{statement}\nimport sys\nprint('\\n'.join({{name.partition('.')[0] for name in sys.modules}}))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import tuner_tui.ui.app", {"torch", "transformers", "numpy"}),
        ("import tuner_tui.cli.main", {"torch", "transformers", "numpy", "textual", "pydantic"}),
        ("import tuner_tui.runs.supervise.supervisor", {"torch", "textual", "rich", "typer", "pydantic"}),
    ],
)
def test_a_process_leaves_out_what_it_does_not_need(statement: str, forbidden: set[str]) -> None:
    assert not forbidden & modules_after(statement)


def test_files_stay_small(repository: Path) -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in (repository / "tuner_tui").rglob("*.py")}
    assert lengths
    assert not {str(path): length for path, length in lengths.items() if length > LONGEST_FILE}


def test_the_top_level_holds_nothing_else(repository: Path) -> None:
    files = subprocess.run(["git", "ls-files"], cwd=repository, capture_output=True, text=True, check=False)
    if files.returncode != 0:
        pytest.skip("not a git checkout")
    top = {line.split("/")[0] for line in files.stdout.splitlines()}
    assert {name for name in top if not name.startswith(".")} == {
        "tuner_tui", "tests", "presets", "pyproject.toml", "README.md",
    }  # fmt: skip
