from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tuner_tui.trainer.cache import cache_folder, exclusive, write_atomic
from tuner_tui.trainer.shapes import cached_tokenizer, shape_tokenizer


def test_any_text_survives_encoding_and_decoding() -> None:
    tokenizer = shape_tokenizer()
    text = "def größe(x):\n    return '日本 🙂' # \x00"
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_pairs_are_wrapped_and_told_apart() -> None:
    tokenizer = shape_tokenizer()
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("a", "b")["input_ids"])
    assert (tokens[0], tokens[-1], tokens.count("</s>")) == ("<s>", "</s>", 2)


def test_the_tokenizer_is_kept_and_not_trained_again(tmp_path: Path) -> None:
    path = tmp_path / "bpe.json"
    cached_tokenizer(path, ["some text to learn from"] * 4)
    written = path.read_bytes()

    def unread() -> Iterator[str]:
        pytest.fail("trained again")
        yield ""

    again = cached_tokenizer(path, unread())
    assert path.read_bytes() == written
    assert again.get_vocab_size() > 256


def hold_and_write(path: Path, taken: Event) -> None:
    """What another process does: take the lock, say so, write."""
    with exclusive(path):
        taken.set()
        write_atomic(path, "first")


def test_a_second_training_waits_for_the_first_and_finds_its_file(tmp_path: Path) -> None:
    path, context = tmp_path / "bpe.json", multiprocessing.get_context("spawn")
    taken = context.Event()
    other = context.Process(target=hold_and_write, args=(path, taken))
    other.start()
    assert taken.wait(60)
    with exclusive(path):
        assert path.read_text() == "first"
    other.join(60)
    assert other.exitcode == 0


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "half \ud800")
    assert list(tmp_path.iterdir()) == []


def test_the_cache_follows_the_users_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("tokenizers") == tmp_path / "tuner-tui" / "tokenizers"


def test_a_relative_cache_folder_is_not_a_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "tuner-tui"


def test_a_link_in_the_temporary_folder_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere, home = tmp_path / "elsewhere", tmp_path / "home"
    elsewhere.mkdir()
    home.write_text("no folder")
    (tmp_path / f"tuner-tui-{os.getuid()}").symlink_to(elsewhere)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = cache_folder("tokenizers")
    assert found.resolve().parent.parent == tmp_path
    assert found.parent.stat().st_mode & 0o777 == 0o700
    assert list(elsewhere.iterdir()) == []
