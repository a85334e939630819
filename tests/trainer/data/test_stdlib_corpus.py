from __future__ import annotations

from pathlib import Path

import pytest

from tuner_tui.trainer.data import stdlib_corpus as corpus
from tuner_tui.trainer.errors import JobError


@pytest.fixture(scope="module")
def files() -> list[corpus.SourceFile]:
    return corpus.source_files(corpus.library_folder())


def test_installed_packages_and_tests_are_left_out(tmp_path: Path) -> None:
    for name in ("json/encoder.py", "site-packages/torch/nn.py", "test/test_json.py", "json/tests/test_x.py", "abc.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    assert [file.module for file in corpus.source_files(tmp_path)] == ["abc", "json"]


def test_a_library_without_sources_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="has no source files"):
        corpus.source_files(tmp_path)


def test_snippets_are_many_labelled_and_never_twice(files: list[corpus.SourceFile]) -> None:
    snippets = corpus.snippets(files)
    texts = [snippet.text for snippet in snippets]
    assert len(texts) == len(set(texts)) > 3000
    assert len({snippet.module for snippet in snippets}) == corpus.LABEL_COUNT
    assert all(len(text.splitlines()) == corpus.LINES_PER_SNIPPET for text in texts)


def test_the_same_library_gives_the_same_snippets_and_fingerprint(files: list[corpus.SourceFile]) -> None:
    again = corpus.source_files(corpus.library_folder())
    assert corpus.snippets(files) == corpus.snippets(again)
    assert corpus.fingerprint(files) == corpus.fingerprint(again)


def test_a_changed_file_changes_the_fingerprint() -> None:
    one, other = corpus.SourceFile("json", "x = 1"), corpus.SourceFile("json", "x = 2")
    assert corpus.fingerprint([one]) != corpus.fingerprint([other])


def test_text_that_two_modules_share_is_labelled_once() -> None:
    text = "\n".join(f"line {n}" for n in range(corpus.LINES_PER_SNIPPET))
    snippets = corpus.snippets([corpus.SourceFile("a", text), corpus.SourceFile("b", text)])
    assert [snippet.module for snippet in snippets] == ["a"]
