"""The workload of a job: its model and the tokens of a sample."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from tuner_tui.advice.recommend.target import TrainingTarget
from tuner_tui.memory.activation_memory import activation_bytes
from tuner_tui.memory.device import Device
from tuner_tui.memory.estimate import MemoryEstimate
from tuner_tui.memory.job_task import modelled_job
from tuner_tui.memory.known_shapes import built_in_shape, known_shape
from tuner_tui.memory.model_shape import ModelShape
from tuner_tui.memory.parameter_counts import count_parameters
from tuner_tui.settings.job import CommandJob, Job
from tuner_tui.settings.model import Settings

LARGE_MODEL = 5e8
"""Parameters from which models are usually trained in full with no more than the notes' base rate."""
LOGITS_SHARE = 1 / 4
"""Logits above this share of a sample's memory limit the evaluation batch, too."""
IMAGE_TOKENS = 197
"""Patches of 16 × 16 in an image of 224 × 224, and the token of its class: what most models for images compute on."""

Trace = Callable[[TrainingTarget, Settings], MemoryEstimate]
"""The estimate by a trace, which may take seconds. Raises `TraceError`."""


class Workload(Struct, frozen=True):
    """The model of a job, by name and shape (None where not even its size is known), and the tokens per sample.

    `trace` is there for a model without a shape whose memory a trace tells.
    """

    shape: ModelShape | None
    label: str
    tokens: int
    language_model: bool
    pretrained: bool = True
    trace: Trace | None = None

    @property
    def is_estimated(self) -> bool:
        """Whether the memory of the model is known."""
        return self.shape is not None or self.trace is not None

    @property
    def parameters(self) -> int | None:
        """The number of parameters without adapters; None where unknown."""
        return None if self.shape is None else count_parameters(self.shape, Settings()).total

    @property
    def is_large(self) -> bool:
        """Whether the model is known to have more than `LARGE_MODEL` parameters."""
        return (self.parameters or 0) > LARGE_MODEL

    @property
    def has_large_logits(self) -> bool:
        """Whether a language model's logits are a large part of a sample's memory."""
        if self.shape is None:
            return self.language_model
        settings = Settings(max_length=max(8, self.tokens), precision="fp16")
        size = activation_bytes(self.shape, settings, Device(on_gpu=True))
        return size.loss_backward > LOGITS_SHARE * (self.shape.layers * size.block + size.loss_backward)


def workload_of(job: Job, tokens: int) -> Workload:
    """The workload of a job; a command of unknown model counts as the notes' own, classification."""
    job = modelled_job(job) or job
    if isinstance(job, CommandJob):
        return Workload(None, "the command's model", tokens, language_model=False)
    language_model = job.task == "causal-lm"
    built_in = built_in_shape(job.model, job.task)
    if built_in is not None:
        return Workload(built_in, BUILT_IN_LABELS[job.model], tokens, language_model, pretrained=False)
    label = job.model.rstrip("/").rpartition("/")[2].lower()
    tokens = IMAGE_TOKENS if job.task == "image-classification" else tokens
    return Workload(known_shape(job.model, job.task), label, tokens, language_model)


BUILT_IN_LABELS = {
    "tiny": "tiny", "bert-base": "BERT-base", "bert-large": "BERT-large", "gpt2": "GPT-2", "llama-1b": "Llama-1B",
}  # fmt: skip
