"""What a second user of the machine can read, change and lead this program to. The user is created by root."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.command_line import tuner
from tuner_tui.runs.store.folder import create_folder

NAME = f"tuner{os.getpid()}"


@pytest.fixture(scope="module")
def stranger() -> Iterator[pwd.struct_passwd]:
    """A user without rights; skips where none can be created."""
    if os.getuid() != 0 or shutil.which("useradd") is None:
        pytest.skip("only root can create a user")
    subprocess.run(["useradd", "--system", "--no-create-home", "--shell", "/bin/sh", NAME], check=True)
    yield pwd.getpwnam(NAME)
    subprocess.run(["userdel", NAME], check=True)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody may enter."""
    made = Path(tempfile.mkdtemp(prefix="tuner-shared-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def run_as(user: pwd.struct_passwd, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, user=user.pw_uid, group=user.pw_gid, extra_groups=[], cwd="/", capture_output=True, text=True
    )


def test_the_stranger_reads_and_changes_no_run(stranger: pwd.struct_passwd, place: Path) -> None:
    state = place / "state"
    mask = os.umask(0)
    try:
        ran = tuner(state, "run", "--", sys.executable, "-c", "print('step 1 loss 0.5')")
    finally:
        os.umask(mask)
    assert ran.returncode == 0, ran
    files = list((state / "runs").rglob("*"))
    assert {"run.json", "events.jsonl", "output.log", "state.json"} <= {path.name for path in files}
    for path in (state / "runs", *files):
        assert run_as(stranger, "ls" if path.is_dir() else "cat", str(path)).returncode != 0, path
        assert not path.stat().st_mode & 0o077, path
    assert run_as(stranger, "touch", str(state / "runs" / "r002")).returncode != 0


def test_a_state_folder_that_everybody_may_change_is_taken_back(stranger: pwd.struct_passwd, place: Path) -> None:
    runs = place / "state" / "runs"
    runs.mkdir(parents=True)
    for folder in (runs.parent, runs):
        folder.chmod(0o777)
    create_folder(runs)
    assert [stat.S_IMODE(folder.stat().st_mode) & 0o022 for folder in (runs.parent, runs)] == [0, 0]
    assert run_as(stranger, "mv", str(runs), str(runs.parent / "mine")).returncode != 0


def test_a_state_folder_of_the_stranger_is_refused(stranger: pwd.struct_passwd, place: Path) -> None:
    runs = place / "state" / "runs"
    runs.mkdir(parents=True)
    runs.chmod(0o777)
    os.chown(runs, stranger.pw_uid, stranger.pw_gid)
    ran = tuner(place / "state", "run", "--", sys.executable, "-c", "pass")
    assert ran.returncode != 0
    assert f"It may be changed by user {NAME}" in ran.stderr
    assert list(runs.glob("r*")) == []


@pytest.mark.parametrize("how", ["file", *(pytest.param(how, marks=pytest.mark.full) for how in ("folder", "mode"))])
def test_presets_that_the_stranger_may_change_are_refused(
    stranger: pwd.struct_passwd, place: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place))
    presets = place / "tuner-tui" / "presets"
    presets.mkdir(parents=True)
    (presets / "evil.yaml").write_text("about: runs as you\njob:\n  command: [touch, /tmp/evil]\n")
    if how == "mode":
        presets.chmod(0o777)
    else:
        os.chown(presets if how == "folder" else presets / "evil.yaml", stranger.pw_uid, stranger.pw_gid)
    shown = tuner(place / "state", "presets", "show", "evil")
    assert shown.returncode == 2
    assert "may be changed by" in shown.stderr
    listed = json.loads(tuner(place / "state", "presets", "list", "--json").stdout)
    (evil,) = [preset for preset in listed if preset["name"] == "evil"]
    assert "may be changed by" in evil["problem"]
