"""torchtune 0.6.1, `tune run`: recipes whose configuration has a section for each component."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner_tui.settings.dialects.dialect import Dialect
from tuner_tui.settings.model import Value

COMMENT = re.compile(r"\btune run\s+((?:--[\w-]+[ =][\w.-]+\s+)*)([A-Za-z][\w./]*)\s")
"""The command in the comments that torchtune's own configurations begin with."""
RECIPES = (
    ("dpo", "lora_dpo_single_device", "lora_dpo_distributed"),
    ("kd", "knowledge_distillation_single_device", "knowledge_distillation_distributed"),
    ("ppo", "ppo_full_finetune_single_device", "ppo_full_finetune_single_device"),
    ("qat", "qat_single_device", "qat_distributed"),
    ("lora", "lora_finetune_single_device", "lora_finetune_distributed"),
    ("full", "full_finetune_single_device", "full_finetune_distributed"),
)
"""A word of a configuration's name, and its recipes for one device and for several."""


def choose_command(values: Mapping[str, Any], path: Path) -> str:
    """The recipe that the file's comments name, else the one that its name or its model's component belongs to."""
    named = COMMENT.search(path.read_text(errors="replace")) if path.is_file() else None
    if named is not None and ("teacher_model" in values) == ("distillation" in named[2]):
        return f"tune run {named[1]}{named[2]} --config {{config}}"
    model = values.get("model")
    component = str(model.get("_component_", "")) if isinstance(model, Mapping) else ""
    words = {*re.split(r"[^a-z0-9]+", path.stem.lower())} | ({"kd"} if "teacher_model" in values else set())
    words |= {"lora"} if re.search("lora|dora", component + path.stem) else {"full"}
    recipe = next(recipe_names for recipe_names in RECIPES if recipe_names[0] in words)
    return f"tune run {recipe[2 if 'distributed' in words else 1]} --config {{config}}"


def read_component(values: Mapping[str, Any]) -> Mapping[str, Value]:
    """Adapter and quantization, which the model's builder says: `torchtune.models.llama3_1.qlora_llama3_1_8b`.

    QLoRA of torchtune is torchao's nf4 with quantized scales.
    """
    builder = str(values.get("model._component_", "")).rpartition(".")[2]
    if not builder.startswith(("lora_", "qlora_")):
        return {}
    method = "dora" if values.get("model.use_dora") is True else "lora"
    quantized: dict[str, Value] = {"quantization": "nf4", "bnb_4bit_use_double_quant": True}
    return {"peft_method": method} | (quantized if builder.startswith("q") else {})


DIALECT = Dialect(
    name="torchtune",
    tool="torchtune",
    command="tune run full_finetune_single_device --config {config}",
    programs=("tune",),
    names={
        "per_device_train_batch_size": "batch_size",
        "gradient_accumulation_steps": "gradient_accumulation_steps",
        "learning_rate": "optimizer.lr",
        "weight_decay": "optimizer.weight_decay",
        "warmup_steps": "lr_scheduler.num_warmup_steps",
        "max_grad_norm": "clip_grad_norm",
        "num_train_epochs": "epochs",
        "max_length": "tokenizer.max_seq_len",
        "gradient_checkpointing": "enable_activation_checkpointing",
        "torch_compile": "compile",
        "lora_r": "model.lora_rank",
        "lora_alpha": "model.lora_alpha",
        "lora_dropout": "model.lora_dropout",
        "logging_steps": "log_every_n_steps",
        "seed": "seed",
    },
    read_more=read_component,
    values={"precision": {"bf16": {"dtype": "bf16"}, "fp32": {"dtype": "fp32"}}},
    whole=frozenset({"num_train_epochs", "warmup_steps"}),
    extends_hf=False,
    nested=True,
    file_keys=frozenset({
        "model._component_", "tokenizer._component_", "checkpointer._component_", "dataset._component_",
        "optimizer._component_", "loss._component_", "enable_activation_checkpointing", "log_peak_memory_stats",
        "max_steps_per_epoch",
    }),
    choose_command=choose_command,
    model_keys=("checkpointer.checkpoint_dir",),
    data_keys=("dataset.source", "dataset.data_files", "dataset._component_"),
)  # fmt: skip
