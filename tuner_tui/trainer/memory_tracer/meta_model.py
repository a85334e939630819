"""Model and optimizer for a memory trace, built from the configuration alone, without weights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from ..hub import SHAPES
from ..job.config import JobArguments
from ..models.adapters import add_adapters
from ..models.load import set_class_names
from ..models.shapes import shape_config

TOKENS = SimpleNamespace(pad_token_id=0, bos_token_id=1, eos_token_id=2)


def build_meta_model(job: JobArguments, labels: int, checkpointing: bool) -> Any:
    """The job's model on the device `meta`: its weights take no memory, and initialising them no time."""
    with torch.device("meta"):
        return configure_model(job, labels, checkpointing)


def configure_model(job: JobArguments, labels: int, checkpointing: bool) -> Any:
    """The model with adapters and checkpointing, wherever tensors are made."""
    config = model_config(job, labels)
    options: dict[str, Any] = {"trust_remote_code": job.trust_remote_code}
    if job.attn_implementation not in (None, "auto"):
        options["attn_implementation"] = job.attn_implementation
    family = AutoModelForCausalLM if job.task == "causal-lm" else AutoModelForSequenceClassification
    model = add_adapters(family.from_config(config, **options), job, checkpointing)
    model.config.use_cache = False
    if checkpointing:
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    return model


def make_fake(model: Any) -> Any:
    """`model` with every weight and buffer on the CPU; to be called under a fake mode. What was shared stays shared.

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
    """An empty tensor of the same shape and kind; a parameter where that is one."""
    empty = torch.empty_like(tensor, device="cpu")
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty


def model_config(job: JobArguments, labels: int) -> Any:
    """The configuration, with as many outputs as a classifier of the data would have."""
    names = None if job.task == "causal-lm" else [str(number) for number in range(labels)]
    if job.model in SHAPES:
        return set_class_names(shape_config(job.model, job.task, TOKENS), names)
    config = set_class_names(AutoConfig.from_pretrained(job.model, trust_remote_code=job.trust_remote_code), names)
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = 0
    if int(transformers.__version__.partition(".")[0]) < 5:
        config.torch_dtype = torch.float32  # before 5, weights were loaded in fp32 whatever they were saved in
    return config


def build_optimizer(model: Any, name: str, foreach: bool) -> Any | None:
    """The optimizer as TrainingArguments' `optim` names it; None where it needs a package or a GPU to be traced.

    `foreach` is what torch chooses by itself on a GPU: all tensors at once.
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
