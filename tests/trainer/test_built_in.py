from __future__ import annotations

from tests.late_module import late_module

transformers = late_module("transformers")
built_in = late_module("tuner_tui.trainer.built_in")


def test_any_text_survives_encoding_and_decoding() -> None:
    tokenizer = built_in.shape_tokenizer()
    text = "def größe(x):\n    return '日本 🙂' # \x00"
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_pairs_are_wrapped_by_special_tokens() -> None:
    tokenizer = built_in.shape_tokenizer()
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("a", "b")["input_ids"])
    assert (tokens[0], tokens[-1], tokens.count("</s>")) == ("<s>", "</s>", 2)


def test_every_process_trains_the_same_tokenizer() -> None:
    """A resumed training goes on with the words of its checkpoint."""
    assert built_in.shape_tokenizer().get_vocab() == built_in.shape_tokenizer().get_vocab()


def test_snippets_are_many_and_of_installed_packages_none() -> None:
    snippets = built_in.snippets()
    assert len(snippets) > 3000
    assert len(set(snippets.values())) == built_in.LABEL_COUNT
    assert all(len(text.splitlines()) == built_in.LINES_PER_SNIPPET for text in snippets)
    assert not {module for module, _ in built_in.source_files()} & built_in.SKIPPED_FOLDERS
