from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from tuner_tui.trainer.data.sources import Columns, find_columns
from tuner_tui.trainer.errors import JobError


def test_usual_names_are_found() -> None:
    assert find_columns(["id", "sentence", "target"], "classification") == Columns("sentence", None, "target")


def test_upper_and_lower_case_are_the_same() -> None:
    assert find_columns(["Text", "Label"], "classification") == Columns("Text", None, "Label")


@pytest.mark.parametrize(
    ("present", "text", "pair"),
    [
        (["premise", "hypothesis", "label"], "premise", "hypothesis"),
        (["sentence1", "sentence2", "label"], "sentence1", "sentence2"),
        (["question", "sentence", "label"], "question", "sentence"),
        (["question1", "question2", "label"], "question1", "question2"),
        (["text", "text_pair", "label"], "text", "text_pair"),
    ],
)
def test_second_texts_are_found(present: list[str], text: str, pair: str) -> None:
    assert find_columns(present, "classification") == Columns(text, pair, "label")


def test_named_columns_win_over_usual_ones() -> None:
    present = ["text", "label", "body_de", "mood", "reply"]
    assert find_columns(present, "classification", "body_de", "reply", "mood") == Columns("body_de", "reply", "mood")


def test_a_language_model_needs_no_label() -> None:
    assert find_columns(["content", "stars"], "causal-lm") == Columns("content")


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [({}, "label column"), ({"label": "mood"}, "column `mood`"), ({"text": "body"}, "column `body`")],
)
def test_a_missing_column_is_named_with_those_present(arguments: dict[str, str], missing: str) -> None:
    with pytest.raises(JobError, match=rf"no {missing}.*it has text, stars"):
        find_columns(["text", "stars"], "classification", **arguments)
