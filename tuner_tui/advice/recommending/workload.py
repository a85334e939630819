"""How heavy a job is: parameters, width and vocabulary of its model, tokens of a sample."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tuner_tui.settings.job import BuiltinJob, CommandJob

SIZE = re.compile(r"(?<![\d.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])")
BYTES_PER_ACTIVATION = 120
"""Bytes a layer keeps for the backward pass, by hidden unit and token, in 16-bit autocast; twice that in fp32.

With it the batch sizes that google-research/bert's README found to fit 12 GB in fp32 come out (at 128 tokens: 32 with
BERT-base, 6 with BERT-large). Fused kernels keep less: 34 (Korthikanti et al. 2022).
"""
BYTES_PER_LOGIT = 14
"""A language model's logits: 16-bit, the copy in fp32, its gradient, and the softmax."""
BERT_BASE_WEIGHTS = 85e6
BERT_BASE_WIDTH = 12 * 768


@dataclass(frozen=True, slots=True)
class Model:
    """The sizes of a model that memory depends on: `width` is layers × hidden size."""

    parameters: float
    width: float
    vocabulary: int
    words: str
    guessed: bool = False
    pretrained: bool = True


SHAPES = {
    "tiny": Model(1.1e6, 2 * 128, 4096, "tiny", pretrained=False),
    "bert-base": Model(110e6, BERT_BASE_WIDTH, 30_522, "BERT-base", pretrained=False),
    "bert-large": Model(335e6, 24 * 1024, 30_522, "BERT-large", pretrained=False),
    "gpt2": Model(124e6, 12 * 768, 50_257, "GPT-2", pretrained=False),
    "llama-1b": Model(1.24e9, 16 * 2048, 128_256, "Llama-1B", pretrained=False),
}


@dataclass(frozen=True, slots=True)
class Workload:
    """One job's model and the tokens of a sample."""

    model: Model
    tokens: int
    language_model: bool

    def sample_bytes(self, sixteen_bit: bool, checkpointing: bool) -> float:
        """What one sample of a micro batch keeps on the card until its backward pass; an estimate."""
        activations = BYTES_PER_ACTIVATION * self.model.width * self.tokens
        if not sixteen_bit:
            activations *= 2
        if checkpointing:
            activations *= 0.6  # the notes' 40 % less
        return activations + (self.logit_bytes if self.language_model else 0)

    @property
    def logit_bytes(self) -> float:
        """What the logits of one sample take in training."""
        return BYTES_PER_LOGIT * self.model.vocabulary * self.tokens


def workload_of(job: BuiltinJob | CommandJob, tokens: int) -> Workload:
    """The workload of a job; a command is taken as the notes' own: classification by a model of BERT's size."""
    if isinstance(job, CommandJob):
        return Workload(_like_bert("the command's model", guessed=True), tokens, False)
    language_model = job.task == "causal-lm"
    return Workload(model_of(job.model, language_model), tokens, language_model)


def model_of(name: str, language_model: bool) -> Model:
    """A model's sizes, from a shape, or from what a Hub id or folder says of itself."""
    if name in SHAPES:
        return SHAPES[name]
    short = name.rstrip("/").rpartition("/")[2].lower()
    if (found := SIZE.search(short)) is not None:
        experts, number, unit = found.groups()
        return _of_size(short, float(number) * (1e9 if unit == "b" else 1e6) * int(experts or 1))
    if short in ("gpt2", "distilgpt2"):
        return Model(124e6, BERT_BASE_WIDTH, 50_257, short)
    if "large" in short:
        return Model(335e6, 24 * 1024, 50_265, short)
    if any(word in short for word in ("base", "distil", "mini", "small", "tiny")):
        return _like_bert(short, guessed=False)
    return _of_size(short, 1e9, guessed=True) if language_model else _like_bert(short, guessed=True)


def _like_bert(words: str, guessed: bool) -> Model:
    return Model(110e6, BERT_BASE_WIDTH, 30_522, words, guessed)


def _of_size(words: str, parameters: float, guessed: bool = False) -> Model:
    # From BERT-base to models of 8 billion, layers × hidden grows with the weights to the power of 0.58.
    width = BERT_BASE_WIDTH * max(parameters / BERT_BASE_WEIGHTS, 0.01) ** 0.58
    return Model(parameters, width, 128_256 if parameters >= 4e8 else 50_257, words, guessed)
