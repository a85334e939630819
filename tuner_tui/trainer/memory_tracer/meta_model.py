"""Model and optimizer for a memory trace, built from the configuration alone, without weights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import transformers

from ..job.config import JobArguments
from ..models.adapters import add_adapters
from ..models.load import model_class, model_config, model_options

TOKENS = SimpleNamespace(pad_token_id=0, bos_token_id=1, eos_token_id=2)


def build_meta_model(job: JobArguments, labels: int, checkpointing: bool) -> Any:
    """The job's model on the meta device, where weights take neither memory nor time to initialise."""
    with torch.device("meta"):
        return configure_model(job, labels, checkpointing)


def configure_model(job: JobArguments, labels: int, checkpointing: bool) -> Any:
    """The model with adapters and checkpointing, on the current default device."""
    model = model_class(job).from_config(trace_config(job, labels), **model_options(job))
    model = add_adapters(model, job, checkpointing)
    model.config.use_cache = False
    if checkpointing:
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    return model


def make_fake(model: Any) -> Any:
    """Move weights and buffers from meta to (fake) CPU tensors; call it in a fake mode. Shared tensors stay shared.

    Adapters cannot be made under a fake mode: they are moved to the device of the weights, which fake tensors refuse.
    """
    made: dict[torch.Tensor, torch.Tensor] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    held[name] = made.setdefault(tensor, empty_on_cpu(tensor))
    return model


def empty_on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """An empty CPU tensor of the same shape and dtype; a parameter for a parameter."""
    empty = torch.empty_like(tensor, device="cpu")
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty


def trace_config(job: JobArguments, labels: int) -> Any:
    """The configuration, with `labels` outputs for a classifier."""
    names = None if job.task == "causal-lm" else [str(number) for number in range(labels)]
    return model_config(job, TOKENS, names)


def build_optimizer(model: Any, name: str, foreach: bool) -> Any | None:
    """The optimizer of `TrainingArguments.optim`; None for one that needs a further package or a GPU.

    `foreach` is what torch chooses by default on a GPU: all tensors at once.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if name == "adamw_torch":
        return torch.optim.AdamW(trained, lr=1e-5, foreach=foreach)
    if name == "adamw_torch_fused":
        return torch.optim.AdamW(trained, lr=1e-5, fused=True)
    if name == "sgd":
        return torch.optim.SGD(trained, lr=1e-5, foreach=foreach)
    if name == "adafactor":
        return transformers.Adafactor(trained, lr=1e-5, scale_parameter=False, relative_step=False)
    return None
