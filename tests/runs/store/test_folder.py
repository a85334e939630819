"""Run folders and their names."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tuner_tui.core.numbered_folders import FolderNotFoundError
from tuner_tui.runs.store.folder import RunFolder, create_folder, find_run, list_runs


def test_names_count_up_and_folders_are_private(tmp_path: Path) -> None:
    made = [create_folder(tmp_path / "state" / "runs") for _ in range(3)]
    assert [folder.id for folder in made] == ["r001", "r002", "r003"]
    assert all(folder.path.stat().st_mode & 0o777 == 0o700 for folder in made)
    assert list_runs(tmp_path / "state" / "runs") == made[::-1]


def test_a_number_in_use_is_not_used_again(tmp_path: Path) -> None:
    (tmp_path / "r041").mkdir()
    (tmp_path / "r1200").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "r999999999999").mkdir()
    (tmp_path / "r1300").write_text("a file")
    assert create_folder(tmp_path).id == "r1201"


def test_launches_of_the_same_moment_get_names_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        names = {made.id for made in pool.map(lambda _: create_folder(tmp_path), range(64))}
    assert len(names) == 64


@pytest.mark.parametrize("name", ["r007", "r7", "7", "007", "r0007"])
def test_a_run_answers_to_its_number(tmp_path: Path, name: str) -> None:
    (tmp_path / "r007").mkdir()
    (tmp_path / "r070").mkdir()
    assert find_run(name, tmp_path).id == "r007"


def test_a_run_answers_to_its_path(tmp_path: Path) -> None:
    folder = create_folder(tmp_path)
    assert find_run(str(folder.path), tmp_path / "elsewhere") == RunFolder(folder.path.resolve())


@pytest.mark.parametrize("name", ["r9", "", "demo", "r", "../r001", "r007\n"])
def test_an_unknown_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "r007").mkdir()
    with pytest.raises(FolderNotFoundError, match="r007"):
        find_run(name, tmp_path)


def test_the_ranks_have_event_files_of_their_own(tmp_path: Path) -> None:
    folder = create_folder(tmp_path)
    for name in ("events-rank1.jsonl", "events-rank0.jsonl", "events.txt"):
        (folder.path / name).touch()
    assert [path.name for path in folder.event_files()] == ["events.jsonl", "events-rank0.jsonl", "events-rank1.jsonl"]
    assert os.fspath(folder.output) == os.fspath(folder.path / "output")


@pytest.mark.parametrize("name", ["./gone", "a/" * 3000])
def test_a_path_that_is_none_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(FolderNotFoundError, match="There is no run folder"):
        find_run(name, tmp_path)
