"""`tuner-tui watch` in a pipe, over this machine and its processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MAIN = "from tuner_tui.cli.main import main; main()"
WAIT = "print('up', flush=True); input()"


@pytest.fixture
def training(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A Python that is named like a training and waits."""
    script = tmp_path / "train.py"
    script.write_text(WAIT)
    started = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "up\n"
    yield started
    started.kill()
    started.communicate()


def watch(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "TUNER_STATE_DIR": str(tmp_path / "state")}
    command = [sys.executable, "-c", MAIN, "watch", *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)


def test_once_as_json_is_one_document_with_the_job(tmp_path: Path, training: subprocess.Popen[str]) -> None:
    done = watch(tmp_path, str(training.pid), "--once", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    view = json.loads(done.stdout)
    (job,) = view["jobs"]
    assert job["pid"] == training.pid
    assert job["rss_bytes"] > 0
    assert job["command"][1].endswith("train.py")
    assert view["sample"]["host"]["ram_total_bytes"] > 0


def test_once_is_a_table(tmp_path: Path, training: subprocess.Popen[str]) -> None:
    done = watch(tmp_path, str(training.pid), "--once")
    assert done.returncode == 0
    assert "python train.py" in done.stdout
    assert "RAM" in done.stdout


def test_one_job_is_watched_until_it_ends(tmp_path: Path, training: subprocess.Popen[str]) -> None:
    environ = {**os.environ, "TUNER_STATE_DIR": str(tmp_path / "state")}
    command = [sys.executable, "-c", MAIN, "watch", str(training.pid), "--json"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["jobs"]
        training.communicate("\n")
        last = [json.loads(line) for line in watching.stdout][-1]
    assert last["jobs"] == []
    assert watching.returncode == 0


def test_a_pipe_that_closes_ends_it_without_a_word(tmp_path: Path, training: subprocess.Popen[str]) -> None:
    command = [sys.executable, "-c", MAIN, "watch", str(training.pid), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert watching.stdout.readline()
        watching.stdout.close()
        assert watching.stderr.read() == ""
    assert watching.returncode == 0


def test_an_interrupt_ends_it_with_its_code(tmp_path: Path, training: subprocess.Popen[str]) -> None:
    command = [sys.executable, "-c", MAIN, "watch", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        watching.stdout.read()
    assert watching.returncode == 130
