"""The observer's code in every Python found on this machine; none of them needs torch for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.observer.observed_process import SITE
from tuner_tui.hardware.interpreter import PROBE_SCRIPT
from tuner_tui.runs.events.types import Event, Unobserved
from tuner_tui.runs.store.codec import decode_event

IMPORT_ALL = """
import importlib, pkgutil, _tuner_observer
for each in pkgutil.walk_packages(_tuner_observer.__path__, "_tuner_observer."):
    importlib.import_module(each.name)
"""
FOLDERS = [*os.environ.get("PATH", "").split(os.pathsep), "/usr/bin", "/usr/local/bin"]


def installed_pythons() -> dict[tuple[int, int], Path]:
    """One interpreter for each version, below `PATH` and pyenv, by the names of the files that their names lead to."""
    candidates = [file for folder in FOLDERS for file in Path(folder).glob("python[23]*")]
    candidates += Path("~/.pyenv/versions").expanduser().glob("*/bin/python")
    pythons: dict[tuple[int, int], Path] = {sys.version_info[:2]: Path(sys.executable)}
    for file in candidates:
        version = re.fullmatch(r"python(\d)\.(\d+)", file.resolve().name)
        if version is not None and ".pyenv/shims" not in str(file):
            pythons.setdefault((int(version[1]), int(version[2])), file)
    return pythons


def run(python: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it; the exit code is the caller's to judge."""
    given = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return subprocess.run([python, *arguments], env=given, capture_output=True, text=True, check=False, timeout=300)


PYTHONS = sorted(installed_pythons().items())
NEW = [pytest.param(path, id=f"{major}.{minor}") for (major, minor), path in PYTHONS if (major, minor) >= (3, 8)]
OLD = [pytest.param(path, id=f"{major}.{minor}") for (major, minor), path in PYTHONS if (major, minor) < (3, 8)]


@pytest.mark.parametrize("python", NEW)
def test_every_module_of_the_observer_can_be_imported(python: Path) -> None:
    result = run(python, "-c", IMPORT_ALL, PYTHONPATH=str(SITE))
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("python", NEW)
def test_the_probe_runs(python: Path) -> None:
    result = run(python, str(PROBE_SCRIPT))
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("python", OLD)
def test_an_older_python_trains_undisturbed_and_says_why_it_is_not_observed(python: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys\nsys.mine = 1\n")
    path = os.pathsep.join([str(SITE), str(tmp_path / "own")])
    result = run(
        python, "-c", "import sys; print(sys.mine)", PYTHONPATH=path, TUNER_RUN_DIR=str(tmp_path), _TUNER_OBSERVED=""
    )
    assert (result.stdout, result.stderr) == ("1\n", "")
    [event] = [event_of(line) for line in (tmp_path / "events.jsonl").read_bytes().splitlines()]
    assert isinstance(event, Unobserved)
    assert re.fullmatch(r"its Python [23]\.\d+\.\d+ is older than 3\.8", event.reason)


def event_of(line: bytes) -> Event | None:
    """The event of one line, None where it does not decode."""
    return decode_event(line)
