"""LoRA and DoRA by peft: small matrices are trained beside the frozen weights."""

from __future__ import annotations

from typing import Any

from .config import JobArguments


def with_adapters(model: Any, job: JobArguments, checkpointing: bool) -> Any:
    """`model` with adapters on all of its linear layers; the classification head, which is new, trains in full."""
    if job.peft_method == "none":
        return model
    from peft import LoraConfig, TaskType, get_peft_model

    heads = heads_of(model) if job.task == "classification" else []
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
        # Frozen embeddings give activations that need no gradient, and a checkpointed layer would then pass none back.
        model.enable_input_require_grads()
    return get_peft_model(model, config)


def heads_of(model: Any) -> list[str]:
    """What stands on top of the pretrained model and is new: a classifier, for some models of several parts.

    peft by itself knows only two names of them, and would adapt a part that it also trains in full.
    """
    parts = model.named_children()
    return [name for name, part in parts if name != model.base_model_prefix and any(True for _ in part.parameters())]
