"""Who may change a file, what is above it and what its links lead to; and how that is allowed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner_tui.core.ownership import TRUSTED_VARIABLE, keep_others_out, require_unshared, shared_with

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "project" / "jobs" / "tuner.yaml"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


@pytest.mark.parametrize(("mode", "others"), [(0o700, None), (0o755, None), (0o777, "every user")])
def test_who_else_may_change_it(tmp_path: Path, mode: int, others: str | None) -> None:
    tmp_path.chmod(mode)
    assert shared_with(tmp_path) == others


@needs_root
def test_the_group_and_the_owner_count(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    assert shared_with(tmp_path) is None  # root's own group
    os.chown(tmp_path, 0, NOBODY)
    assert str(shared_with(tmp_path)).startswith("group ")
    os.chown(tmp_path, NOBODY, NOBODY)
    assert str(shared_with(tmp_path)).startswith("user ")


def test_the_sticky_bit_protects_what_is_in_a_folder_and_not_the_folder(file: Path) -> None:
    file.parent.chmod(0o1777)
    require_unshared(file)
    with pytest.raises(PermissionError, match="every user"):
        require_unshared(file.parent)


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_folder_above_that_others_may_change(file: Path, part: int) -> None:
    shared = (file, *file.parents)[part]
    shared.chmod(0o777)
    with pytest.raises(PermissionError, match=f"run `chmod go-w {shared}`, or set {TRUSTED_VARIABLE}={shared} to"):
        require_unshared(file)


@pytest.mark.parametrize("through", ["file", "folder"])
def test_where_a_link_leads_counts(tmp_path: Path, file: Path, through: str) -> None:
    link = tmp_path / "link"
    link.symlink_to(file if through == "file" else file.parent)
    named = link if through == "file" else link / file.name
    require_unshared(named)
    file.parent.chmod(0o777)
    with pytest.raises(PermissionError):
        require_unshared(named)


@needs_root
def test_a_link_of_a_stranger_to_a_file_of_mine(tmp_path: Path, file: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    os.lchown(link, NOBODY, NOBODY)
    with pytest.raises(PermissionError, match="user "):
        require_unshared(link)


@needs_root
@pytest.mark.parametrize("trusted", ["{file}", "{folder}", "/elsewhere:{folder}/", "*"])
def test_what_is_trusted_is_obeyed(file: Path, trusted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(file, NOBODY, NOBODY)
    with pytest.raises(PermissionError):
        require_unshared(file)
    monkeypatch.setenv(TRUSTED_VARIABLE, trusted.format(file=file, folder=file.parent.parent))
    require_unshared(file)


@needs_root
@pytest.mark.parametrize("trusted", ["", ":", "project", "{folder}x", "{folder}/other"])
def test_what_is_not_trusted_is_not(file: Path, trusted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(file, NOBODY, NOBODY)
    monkeypatch.setenv(TRUSTED_VARIABLE, trusted.format(folder=file.parent))
    with pytest.raises(PermissionError):
        require_unshared(file)


def test_what_is_missing_is_judged_by_what_is_above(file: Path) -> None:
    require_unshared(file.parent / "none" / "at-all")
    file.parent.chmod(0o777)
    with pytest.raises(PermissionError):
        require_unshared(file.parent / "none" / "at-all")


@pytest.mark.parametrize(("mode", "kept"), [(0o777, 0o755), (0o770, 0o750), (0o1777, 0o1777), (0o700, 0o700)])
def test_others_are_kept_out(tmp_path: Path, mode: int, kept: int) -> None:
    tmp_path.chmod(mode)
    keep_others_out(tmp_path)
    assert tmp_path.stat().st_mode & 0o7777 == kept
