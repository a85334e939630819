"""Files are replaced whole and private; folders are private under every umask that lets the user in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner_tui.core.files import make_private, write_atomic, write_durable
from tuner_tui.core.numbered_folders import NumberedFolders


def test_a_file_is_replaced_and_private(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text("old")
    path.chmod(0o644)
    write_atomic(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    write_atomic(path, b"\x00")
    assert path.read_bytes() == b"\x00"
    assert list(tmp_path.iterdir()) == [path]


def test_where_it_cannot_be_written_the_old_file_stays(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "child").touch()
    with pytest.raises(OSError, match="directory"):
        write_atomic(folder, "new")
    assert list(tmp_path.iterdir()) == [folder]


def test_a_file_of_the_user_keeps_all_but_its_content(tmp_path: Path) -> None:
    path, link = tmp_path / "sft.yaml", tmp_path / "link.yaml"
    path.write_text("old")
    path.chmod(0o664)
    link.symlink_to(path)
    if os.getuid() == 0:
        os.chown(path, 1234, 1235)
    try:
        os.setxattr(path, "user.note", b"mine")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    before = path.stat()
    write_durable(link, b"new", overwrite=True)
    after = path.stat()
    assert (path.read_text(), link.is_symlink()) == ("new", True)
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert os.getxattr(path, "user.note") == b"mine"
    assert sorted(tmp_path.iterdir()) == [link, path]


def test_a_file_with_other_names_or_that_is_read_only_stays(tmp_path: Path) -> None:
    path, name = tmp_path / "sft.yaml", tmp_path / "name.yaml"
    path.write_text("old")
    name.hardlink_to(path)
    with pytest.raises(OSError, match="other names"):
        write_durable(path, b"new", overwrite=True)
    name.unlink()
    path.chmod(0o444)
    with pytest.raises(PermissionError):
        write_durable(path, b"new", overwrite=True)
    with pytest.raises(FileExistsError):
        write_durable(path, b"new", overwrite=False)
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_a_folder_and_its_new_parents_are_private(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        run = NumberedFolders("r", "run").create(tmp_path / "state" / "tuner-tui" / "runs")
    finally:
        os.umask(before)
    for folder in (run, *run.parents):
        if folder == tmp_path:
            break
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o755
