"""LoRA and DoRA adapters by peft."""

from __future__ import annotations

from typing import Any

import torch

from ..job.config import JobArguments

HEAD_NAMES = ("classifier", "score", "classification_head")


def add_adapters(model: Any, job: JobArguments, checkpointing: bool) -> Any:
    """`model` with adapters on all linear layers; a new classification head trains in full."""
    if job.peft_method == "none":
        return model
    from peft import LoraConfig, TaskType, get_peft_model

    heads = find_heads(model) if job.task == "classification" else []
    config = LoraConfig(
        task_type=TaskType.CAUSAL_LM if job.task == "causal-lm" else TaskType.SEQ_CLS,
        r=job.lora_r,
        lora_alpha=job.lora_alpha,
        lora_dropout=job.lora_dropout,
        use_dora=job.peft_method == "dora",
        target_modules="all-linear",
        modules_to_save=heads or None,
        exclude_modules=rf"(.*\.)?({'|'.join(heads)})(\..*)?" if heads else None,
    )
    if checkpointing:
        # Outputs of frozen embeddings need no gradient, and a checkpointed layer would then propagate none.
        model.enable_input_require_grads()
    return train_in_fp32(get_peft_model(model, config), heads)


def train_in_fp32(model: Any, heads: list[str]) -> Any:
    """`model` with its trained weights in fp32, which a head on 16-bit weights is not yet; peft casts the adapters.

    Without autocast the 16-bit features are cast for the head, too.
    """
    for weight in model.parameters():
        if weight.requires_grad and weight.dtype in (torch.float16, torch.bfloat16):
            weight.data = weight.data.float()
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in heads:
            module.register_forward_pre_hook(cast_to_fp32)
    return model


def cast_to_fp32(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """16-bit inputs in fp32; under autocast they stay, as it casts the operands itself."""
    if torch.is_autocast_enabled(inputs[0].device.type):
        return inputs
    return tuple(one.float() if isinstance(one, torch.Tensor) and one.is_floating_point() else one for one in inputs)


def find_heads(model: Any) -> list[str]:
    """The names of the untrained classification layers on top of `model`, which train in full.

    The default of peft takes `pre_classifier` for a `classifier` that it has adapted already, and knows no
    `classification_head`: DistilBERT would not start, the heads of BART and T5 would keep their random weights.
    """
    return [name for name, _ in model.named_children() if name.endswith(HEAD_NAMES)]
