"""The shapes of the built-in models."""

from __future__ import annotations

from tuner_tui.memory.known_shapes import built_in_shape
from tuner_tui.memory.model_shape import ModelShape
from tuner_tui.settings.job import Task


def built_in(name: str, task: Task) -> ModelShape:
    shape = built_in_shape(name, task)
    assert shape is not None
    return shape


BERT, TINY_ENCODER = built_in("bert-base", "classification"), built_in("tiny", "classification")
GPT2, LLAMA_1B, TINY_DECODER = (built_in(name, "causal-lm") for name in ("gpt2", "llama-1b", "tiny"))
