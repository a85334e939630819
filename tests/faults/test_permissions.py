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
from tests.runs.builders import whole_run
from tuner_tui.core.procfs import identify_process, this_machine
from tuner_tui.runs.store.folder import SupervisorState, create_folder, write_supervisor_state

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
def shared_folder() -> Iterator[Path]:
    """A folder that everybody may enter."""
    made = Path(tempfile.mkdtemp(prefix="tuner-shared-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def run_as(user: pwd.struct_passwd, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, user=user.pw_uid, group=user.pw_gid, extra_groups=[], cwd="/", capture_output=True, text=True
    )


def test_the_stranger_reads_and_changes_no_run(stranger: pwd.struct_passwd, shared_folder: Path) -> None:
    state = shared_folder / "state"
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


def test_a_state_folder_that_everybody_may_change_is_taken_back(
    stranger: pwd.struct_passwd, shared_folder: Path
) -> None:
    runs = shared_folder / "state" / "runs"
    runs.mkdir(parents=True)
    for folder in (runs.parent, runs):
        folder.chmod(0o777)
    create_folder(runs)
    assert [stat.S_IMODE(folder.stat().st_mode) & 0o022 for folder in (runs.parent, runs)] == [0, 0]
    assert run_as(stranger, "mv", str(runs), str(runs.parent / "mine")).returncode != 0


def test_a_state_folder_of_the_stranger_is_refused(stranger: pwd.struct_passwd, shared_folder: Path) -> None:
    runs = shared_folder / "state" / "runs"
    runs.mkdir(parents=True)
    runs.chmod(0o777)
    os.chown(runs, stranger.pw_uid, stranger.pw_gid)
    ran = tuner(shared_folder / "state", "run", "--", sys.executable, "-c", "pass")
    assert ran.returncode != 0
    assert f"It may be changed by user {NAME}" in ran.stderr
    assert list(runs.glob("r*")) == []


@pytest.mark.parametrize("how", ["file", *(pytest.param(how, marks=pytest.mark.full) for how in ("folder", "mode"))])
def test_presets_that_the_stranger_may_change_are_refused(
    stranger: pwd.struct_passwd, shared_folder: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(shared_folder))
    presets = shared_folder / "tuner-tui" / "presets"
    presets.mkdir(parents=True)
    (presets / "evil.yaml").write_text("about: runs as you\njob:\n  command: [touch, /tmp/evil]\n")
    if how == "mode":
        presets.chmod(0o777)
    else:
        os.chown(presets if how == "folder" else presets / "evil.yaml", stranger.pw_uid, stranger.pw_gid)
    shown = tuner(shared_folder / "state", "presets", "show", "evil")
    assert shown.returncode == 2
    assert "may be changed by" in shown.stderr
    listed = json.loads(tuner(shared_folder / "state", "presets", "list", "--json").stdout)
    (evil,) = [preset for preset in listed if preset["name"] == "evil"]
    assert "may be changed by" in evil["problem"]


def preset_of(path: Path, command: str = "touch started", owner: pwd.struct_passwd | None = None) -> Path:
    path.write_text(f"about: runs as you\njob:\n  kind: command\n  command: [{', '.join(command.split())}]\n")
    if owner is not None:
        os.chown(path, owner.pw_uid, owner.pw_gid)
    return path


def test_a_project_file_of_the_stranger_starts_nothing(stranger: pwd.struct_passwd, shared_folder: Path) -> None:
    project = preset_of(shared_folder / "tuner.yaml", owner=stranger)
    ran = tuner(shared_folder / "state", "run")
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1] == (
        f"{project}: It may be changed by user {NAME}, who could have commands run as you; set TUNER_TRUSTED={project} "
        "to allow it."
    )
    assert not (shared_folder / "started").exists()
    assert tuner(shared_folder / "state", "run", TUNER_TRUSTED=str(shared_folder)).returncode == 0  # as in a container
    assert (shared_folder / "started").exists()
    project.write_text("settings:\n  learning_rate: 1e-5\n")
    assert tuner(shared_folder / "state", "run", "--", "true").returncode == 0  # nothing of the file is started


@pytest.mark.parametrize("how", ["file", "folder", "mode", "link"])
def test_a_preset_named_by_its_path_is_read_and_not_started(
    stranger: pwd.struct_passwd, shared_folder: Path, how: str
) -> None:
    (shared_folder / "shared").mkdir()
    preset = preset_of(shared_folder / "shared" / "theirs.yaml", owner=stranger if how == "file" else None)
    if how == "folder":
        os.chown(preset.parent, stranger.pw_uid, stranger.pw_gid)
    elif how == "mode":
        preset.chmod(0o666)
    elif how == "link":
        preset.rename(preset.with_suffix(".yml"))
        preset.symlink_to(preset.with_suffix(".yml"))
        os.lchown(preset, stranger.pw_uid, stranger.pw_gid)
    assert tuner(shared_folder / "state", "presets", "show", str(preset)).returncode == 0
    for words in (["run", "--preset"], ["run", "--detach", "--when-free", "--preset"]):
        ran = tuner(shared_folder / "state", *words, str(preset))
        assert ran.returncode == 2
        assert "may be changed by" in ran.stderr
    assert not (shared_folder / "started").exists()


def test_a_run_folder_of_the_stranger_is_not_signalled(stranger: pwd.struct_passwd, shared_folder: Path) -> None:
    theirs = shared_folder / "theirs" / "runs"
    folder = whole_run(theirs)
    with subprocess.Popen(["sleep", "100"]) as victim:
        process = identify_process(victim.pid)
        assert process is not None
        write_supervisor_state(folder.state, SupervisorState(this_machine(), process, 1.0, process))
        for path in (theirs.parent, theirs, folder.path, *folder.path.iterdir()):
            os.chown(path, stranger.pw_uid, stranger.pw_gid)
        for words in (["stop", "--now"], ["stop"], ["run", "--detach", "--resume"]):
            ran = tuner(shared_folder / "state", *words, str(folder.path))
            assert ran.returncode in (1, 2)
            assert f"may be changed by user {NAME}" in ran.stderr
        assert victim.poll() is None
        victim.kill()


@pytest.mark.parametrize(("words", "mode"), [(["stop"], 0o600), (["stop", "--now"], 0o666)])
def test_a_state_that_the_stranger_may_write_signals_nothing(
    stranger: pwd.struct_passwd, shared_folder: Path, words: list[str], mode: int
) -> None:
    folder = whole_run(shared_folder / "state" / "runs")
    with subprocess.Popen(["sleep", "100"]) as victim:
        process = identify_process(victim.pid)
        assert process is not None
        write_supervisor_state(folder.state, SupervisorState(this_machine(), process, 1.0, process))
        folder.state.chmod(mode)
        if mode == 0o600:
            os.chown(folder.state, stranger.pw_uid, stranger.pw_gid)
        ran = tuner(shared_folder / "state", *words, folder.id)
        assert ran.returncode in (1, 2)
        assert f"{folder.state}: It may be changed by " in ran.stderr
        assert victim.poll() is None
        victim.kill()


def test_a_state_folder_below_one_that_everybody_may_change(stranger: pwd.struct_passwd, shared_folder: Path) -> None:
    shared = shared_folder / "shared"
    (shared / "mine").mkdir(parents=True)
    shared.chmod(0o777)
    for words in (["run"], ["run", "--detach", "--when-free"]):
        ran = tuner(shared / "mine" / "state", *words, "--", "true")
        assert ran.returncode == 2
        assert f"{shared}" in ran.stderr
        assert "may be changed by every user" in ran.stderr


def test_a_config_folder_that_everybody_may_change(
    stranger: pwd.struct_passwd, shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(shared_folder / "config"))
    presets = shared_folder / "config" / "tuner-tui" / "presets"
    presets.mkdir(parents=True)
    preset_of(presets / "mine.yaml")
    for shared in (shared_folder / "config", presets.parent):
        shared.chmod(0o777)
        ran = tuner(shared_folder / "state", "run", "--preset", "mine")
        assert ran.returncode == 2
        assert f"{shared}: It may be changed by every user" in ran.stderr
        shared.chmod(0o755)
    assert tuner(shared_folder / "state", "run", "--preset", "mine").returncode == 0
