"""The size of a model by its name, where neither its configuration nor a table knows it."""

from __future__ import annotations

import pytest

from tuner_tui.advice.recommend.workload import model_of
from tuner_tui.memory.model_shape import Task

UNKNOWN = "nobody/{}"


@pytest.mark.parametrize(
    ("name", "task", "millions"),
    [
        ("ours-7b", "causal-lm", 7_000),
        ("ours-7b-chat", "causal-lm", 7_000),
        ("ours-1.5b", "causal-lm", 1_500),
        ("ours-350m", "causal-lm", 350),
        ("ours-8x7b", "causal-lm", 56_000),
        ("ours-large", "classification", 335),  # BERT-large: 335 million, of the paper
        ("ours-base", "classification", 110),  # BERT-base: 110 million
        ("ours-tiny", "classification", 110),
        ("gpt2", "causal-lm", 124),
    ],
)
def test_the_name_tells_the_size(name: str, task: Task, millions: float) -> None:
    model = model_of(UNKNOWN.format(name), task)
    assert not model.guessed
    assert model.parameters == pytest.approx(millions * 1e6, rel=0.12)


@pytest.mark.parametrize(("task", "millions"), [("causal-lm", 1_000), ("classification", 110)])
def test_without_a_size_a_usual_one_is_taken_and_said(task: Task, millions: float) -> None:
    model = model_of(UNKNOWN.format("checkpoint"), task)
    assert model.guessed
    assert model.parameters == pytest.approx(millions * 1e6, rel=0.12)


@pytest.mark.parametrize("name", ["v1.5b2", "run-7bit", "2b4"])
def test_a_number_inside_a_word_is_no_size(name: str) -> None:
    assert model_of(UNKNOWN.format(name), "causal-lm").guessed
