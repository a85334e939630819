"""The files that a value passes on its way, as the packages' READMEs draw them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FLOW = Path(__file__).parent / "fakes" / "flow"
MAX_FILES = 12


@pytest.mark.train
def test_a_launch_passes_few_files(tmp_path: Path, repository: Path) -> None:
    """From the command line to the process that trains; `sitecustomize` notes the functions in each process."""
    notes = tmp_path / "flow.txt"
    search = os.pathsep.join(filter(None, [str(FLOW), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "tuner_tui", "run", "--preset", "demo", "--interpreter", sys.executable]
    environment = {**os.environ, "PYTHONPATH": search, "FLOW_FILE": str(notes)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    files: dict[str, list[str]] = {}
    for file, function in map(str.split, notes.read_text("utf-8").splitlines()):
        files.setdefault(file, []).append(function)
    drawing = "\n".join(f"{file}: {', '.join(functions)}" for file, functions in files.items())
    assert list(files)[-1:] == ["trainer/main.py"], f"{drawing}\n{done.stderr}"
    assert len(files) <= MAX_FILES, drawing
    readme = (repository / "tuner_tui" / "runs" / "README.md").read_text("utf-8")
    drawn = readme.partition("A launch passes")[2].partition(". ")[0]
    assert [f"{word}.py" for word in re.findall(r"`([\w/]+)`", drawn)] == list(files), drawing
