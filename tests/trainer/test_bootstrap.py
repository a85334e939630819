"""The job stands alone: what it imports, and what its folder does to the names of other modules."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tuner_tui

TRAINER = Path(tuner_tui.__file__).parent / "trainer"
ALLOWED = {"torch", "transformers", "huggingface_hub", "datasets", "tokenizers", "peft", "accelerate", "yaml", "numpy"}


def imported(path: Path) -> Iterator[str]:
    """Top-level names of the absolute imports of one file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize("path", sorted(TRAINER.rglob("*.py")), ids=lambda path: str(path.relative_to(TRAINER)))
def test_the_training_interpreter_needs_nothing_of_ours(path: Path) -> None:
    assert set(imported(path)) <= ALLOWED | sys.stdlib_module_names


def test_a_folder_of_the_job_hides_no_module_of_a_library(tmp_path: Path) -> None:
    script = (
        f"import runpy, sys; sys.argv = ['trainer']\n"
        f"try: runpy.run_path({str(TRAINER)!r}, run_name='__main__')\n"
        f"except SystemExit as end: print(end.code)\n"
        f"print({str(TRAINER)!r} in sys.path, sorted(name for name in sys.modules if 'tuner' in name))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stderr.startswith("usage:")
    code, rest = result.stdout.splitlines()
    assert code == "2"
    assert rest.startswith("False ['tuner_trainer'")
    assert "tuner_tui" not in rest


def test_an_interpreter_without_the_packages_is_told_which(tmp_path: Path) -> None:
    config = tmp_path / "job.yaml"
    config.write_text("output_dir: out\n")
    result = subprocess.run(
        [sys.executable, "-I", "-S", str(TRAINER), str(config)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "has no yaml, torch, transformers, accelerate, datasets, tokenizers" in result.stderr
    assert "Traceback" not in result.stderr
