"""Parses the configuration: one flat mapping with fields of `TrainingArguments` and of the job.

tuner-tui has checked the values; what is checked here depends on the installed Transformers.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .errors import JobError, first_line

if TYPE_CHECKING:
    from transformers import TrainingArguments


@dataclass
class JobArguments:
    """Model, data and task; everything else is in `TrainingArguments`. The choices are those of tuner-tui's settings.

    `max_length` is the block size of a causal language model; a `weights_dtype` of auto is fp32 for full training, as
    saved under adapters; a `bnb_4bit_compute_dtype` of auto is the precision of the training.
    """

    task: str = "classification"
    model: str = "tiny"
    data: str = "stdlib"
    text_column: str | None = None
    text_pair_column: str | None = None
    label_column: str | None = None
    max_samples: int | None = None
    trust_remote_code: bool = False
    max_length: int = 128
    attn_implementation: str | None = None
    peft_method: str = "none"
    lora_r: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.0
    weights_dtype: str = "auto"
    quantization: str = "none"
    bnb_4bit_compute_dtype: str = "auto"
    bnb_4bit_use_double_quant: bool = False


def parse_config(values: dict[str, Any], path: str = "config") -> tuple[JobArguments, TrainingArguments]:
    """The arguments of the job and of the Trainer. Raises `JobError` for what the installed Transformers refuses."""
    from transformers import TrainingArguments  # takes two seconds, which a memory trace does not need

    job_keys = {field.name for field in dataclasses.fields(JobArguments)}
    job = JobArguments(**{key: value for key, value in values.items() if key in job_keys})
    values = {key: value for key, value in values.items() if key not in job_keys}
    names = {field.name for field in dataclasses.fields(TrainingArguments)}
    defaults: dict[str, Any] = {"report_to": "none", "prediction_loss_only": job.task == "causal-lm"}
    if not (torch.cuda.is_available() or torch.backends.mps.is_available() or torch.xpu.is_available()):
        defaults["use_cpu"] = True  # otherwise Transformers rejects bf16 without a GPU, which a CPU supports
    for prefix in ("activation_checkpointing", "gradient_checkpointing"):
        if values.get(prefix) and f"{prefix}_kwargs" in names:
            # Reentrant checkpointing loses the gradient if the inputs need none, as with frozen embeddings under LoRA.
            defaults[f"{prefix}_kwargs"] = {"use_reentrant": False}
    try:
        arguments = TrainingArguments(**{**defaults, **values})
    except (ValueError, TypeError, ImportError) as error:
        raise JobError(f"{path}: {first_line(error)}") from error
    if arguments.device.type == "cpu":
        arguments.dataloader_pin_memory = False  # without a GPU it has no effect, and PyTorch warns for each loader
    return job, arguments
