from __future__ import annotations

import os
from pathlib import Path

from tuner_tui.hardware.interpreter import probe_cache_entry


def test_an_answer_holds_until_a_stamped_file_changes(tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    entry = probe_cache_entry("kind", ["question", 1], tmp_path / "cache")
    assert entry.read() is None
    entry.write({"answer": 1}, stamped=[str(packages), str(tmp_path / "missing")])
    assert entry.read() == {"answer": 1}
    os.utime(packages, (1, 1))
    assert entry.read() is None


def test_each_question_has_an_entry_of_its_own(tmp_path: Path) -> None:
    first = probe_cache_entry("kind", {"a": 1, "b": 2}, tmp_path)
    assert first == probe_cache_entry("kind", {"b": 2, "a": 1}, tmp_path)
    assert first != probe_cache_entry("kind", {"a": 1}, tmp_path)


def test_a_damaged_entry_is_none_and_one_that_cannot_be_written_no_error(tmp_path: Path) -> None:
    entry = probe_cache_entry("kind", "question", tmp_path)
    for damage in ("", "[]", '{"format": 1}', '{"format": 0, "stamps": {}, "answer": {}}'):
        entry.file.write_text(damage)
        assert entry.read() is None
    (tmp_path / "file").touch()
    probe_cache_entry("kind", "question", tmp_path / "file").write({})
