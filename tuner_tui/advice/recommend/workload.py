"""The workload of a job: its model and the tokens of a sample."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from tuner_tui.memory.closed_form import activation_bytes
from tuner_tui.memory.device import Device
from tuner_tui.memory.model_shape import (
    ModelShape,
    Task,
    built_in_shape,
    count_parameters,
    known_shape,
)
from tuner_tui.settings.job import BuiltinJob, CommandJob, modelled_job
from tuner_tui.settings.model import Settings

SIZE = re.compile(r"(?<![\d.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])")
BERT_BASE_WIDTH = 12 * 768
"""Layers × hidden size."""
HEAD = 128
LOGITS_SHARE = 1 / 4
"""Logits above this share of a sample's memory limit the evaluation batch, too."""


@dataclass(frozen=True, slots=True)
class WorkloadModel:
    """The shape of a model and its name. `guessed` means that not even its size is known."""

    shape: ModelShape
    label: str
    guessed: bool = False
    pretrained: bool = True

    @property
    def parameters(self) -> int:
        """The number of parameters without adapters."""
        return count_parameters(self.shape, Settings()).total

    @property
    def width(self) -> int:
        """Layers × hidden size."""
        return self.shape.layers * self.shape.hidden


@dataclass(frozen=True, slots=True)
class Workload:
    """The model of a job and the tokens per sample."""

    model: WorkloadModel
    tokens: int
    language_model: bool

    @property
    def has_large_logits(self) -> bool:
        """Whether a language model's logits are a large part of a sample's memory."""
        settings = Settings(max_length=max(8, self.tokens), precision="fp16")
        size = activation_bytes(self.model.shape, settings, Device(on_gpu=True))
        return size.loss_backward > LOGITS_SHARE * (self.model.shape.layers * size.block + size.loss_backward)


def workload_of(job: BuiltinJob | CommandJob, tokens: int) -> Workload:
    """The workload of a job; a command of unknown model counts as the notes' own, classification with BERT-base."""
    job = modelled_job(job) or job
    if isinstance(job, CommandJob):
        return Workload(WorkloadModel(_bert("base"), "the command's model", guessed=True), tokens, False)
    return Workload(model_of(job.model, job.task), tokens, job.task == "causal-lm")


def model_of(name: str, task: Task) -> WorkloadModel:
    """The shape of a built-in model or of a local `config.json`, else guessed from the name."""
    if (shape := built_in_shape(name, task)) is not None:
        return WorkloadModel(shape, BUILT_IN_LABELS[name], pretrained=False)
    short = name.rstrip("/").rpartition("/")[2].lower()
    if (shape := known_shape(name, task)) is not None:
        return WorkloadModel(shape, short)
    if (size := SIZE.search(short)) is not None:
        experts, number, unit = size.groups()
        return WorkloadModel(
            _shape_of_size(float(number) * (1e9 if unit == "b" else 1e6) * int(experts or 1), task), short
        )
    if short in ("gpt2", "distilgpt2") and (shape := built_in_shape("gpt2", task)) is not None:
        return WorkloadModel(shape, short)
    if "large" in short:
        return WorkloadModel(_bert("large"), short)
    if any(word in short for word in ("base", "distil", "mini", "small", "tiny")):
        return WorkloadModel(_bert("base"), short)
    return WorkloadModel(_shape_of_size(1e9, task) if task == "causal-lm" else _bert("base"), short, guessed=True)


def _bert(size: str) -> ModelShape:
    shape = built_in_shape(f"bert-{size}", "classification")
    assert shape is not None
    return shape


BUILT_IN_LABELS = {
    "tiny": "tiny", "bert-base": "BERT-base", "bert-large": "BERT-large", "gpt2": "GPT-2", "llama-1b": "Llama-1B",
}  # fmt: skip


@lru_cache(maxsize=64)
def _shape_of_size(parameters: float, task: Task) -> ModelShape:
    """A decoder with `parameters` in the proportions of Llama: as many heads of 128 as layers (7B: 32 of both)."""
    vocab = 128_256 if parameters >= 4e8 else 50_257
    # Decoders that carry their size in their names are saved in 16 bit.
    guess = ModelShape("", "llama", task, 1, HEAD, 1, 1, HEAD, 4 * HEAD, vocab, 131_072, weight_bytes=2)
    # A block of hidden size h has about 15 h² parameters with an MLP four times as wide: in all a cube of the layers.
    while count_parameters(guess, Settings()).total < parameters:
        layers = guess.layers + 1
        hidden = HEAD * layers
        guess = replace(
            guess, layers=layers, hidden=hidden, heads=layers, kv_heads=max(1, layers // 4), intermediate=4 * hidden
        )
    return guess
