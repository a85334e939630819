from __future__ import annotations

from pathlib import Path

import pytest

from tuner_tui.core.atomic_file import write_atomic


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
