"""The job's file: one flat mapping with fields of `TrainingArguments` and of the job, and what it needs of the Hub.

tuner-tui has checked the values; what is checked here depends on the installed Transformers.
"""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

if TYPE_CHECKING:
    from transformers import TrainingArguments


class JobError(Exception):
    """Bad input; the text is one sentence for the user. The job ends with exit code 2."""


def first_line(error: BaseException) -> str:
    """The first non-empty line of an error's text without a trailing full stop, at most 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(".")


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
    import torch  # takes seconds; what can be said without it is said first
    from transformers import TrainingArguments

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


SHAPES = ("tiny", "bert-base", "bert-large", "gpt2", "llama-1b")
STDLIB = "stdlib"
HUB = "https://huggingface.co"
CONNECT_TIMEOUT_S = 5.0
OFFLINE = "HF_HUB_OFFLINE"


def needs_hub(values: Mapping[str, Any]) -> bool:
    """Whether the model or the data may have to be downloaded: neither built in nor a local path."""
    names = (str(values.get("model", "tiny")), str(values.get("data", STDLIB)))
    return any(name not in (*SHAPES, STDLIB) and not Path(name).exists() for name in names)


def go_offline_if_unreachable() -> None:
    """Set `HF_HUB_OFFLINE` if the Hub cannot be reached, so that cached models and data load without retries.

    Must run before `huggingface_hub` is imported. Behind a proxy nothing is tested.
    """
    if OFFLINE in os.environ or "https" in getproxies() or "all" in getproxies():
        return
    hub = urlsplit(os.environ.get("HF_ENDPOINT", HUB))
    try:
        address = (hub.hostname or "", hub.port or (80 if hub.scheme == "http" else 443))
        socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
    except OSError:
        print(f"{hub.hostname} cannot be reached: only cached files can be used")
        os.environ[OFFLINE] = "1"


def find_config_problem(model: str) -> str | None:
    """Why the configuration of `model` cannot be read from the Hub or its cache; asked before torch is imported."""
    from huggingface_hub import hf_hub_download

    try:
        hf_hub_download(model, "config.json")
    except FileNotFoundError:  # of which huggingface_hub's LocalEntryNotFoundError is one in every version
        return f"the configuration of {model} was not downloaded before, and the Hub cannot be reached"
    except ValueError:  # no id of the Hub
        return f"{model} is neither a folder nor a model of the Hub"
    except OSError as error:
        return f"{type(error).__name__}: {first_line(error)}"
    return None
