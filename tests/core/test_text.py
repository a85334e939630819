"""Sentences broken into lines."""

from __future__ import annotations

from tuner_tui.core.text import format_observed, wrap_text


def test_a_path_or_an_option_with_hyphens_stays_whole() -> None:
    path = "/data/run-of-today/train-part-1.jsonl"
    lines = wrap_text(f"The data {path} is not there; see --interpreter PATH", 40)
    assert lines == ["The data", f"{path} is", "not there; see --interpreter PATH"]


def test_a_word_longer_than_a_line_is_broken_where_that_is_wanted() -> None:
    assert wrap_text("abcdefgh", 5) == ["abcde", "fgh"]
    assert wrap_text("abcdefgh", 5, break_long_words=False) == ["abcdefgh"]


def test_the_indents_of_first_and_further_lines() -> None:
    assert wrap_text("a b", 4, initial_indent="> ", subsequent_indent="  ") == ["> a", "  b"]


def test_an_observed_value_is_shown_in_words() -> None:
    seen = {"flash": True, "math": False, "names": ["q_proj", "v_proj"], "more": None, "empty": {}}
    assert format_observed(seen) == "flash on, math off, names q_proj, v_proj, more –, empty none"
