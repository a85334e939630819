"""Unsloth: keyword arguments of `FastLanguageModel` in a script or notebook, and the YAML of `unsloth train`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner_tui.settings.dialects.dialect import Dialect
from tuner_tui.settings.dialects.python_source import render_calls

CALLS = {
    "from_pretrained": "model, tokenizer = FastLanguageModel.from_pretrained(\n    MODEL,",
    "get_peft_model": "model = FastLanguageModel.get_peft_model(\n    model,",
}


def render_cell(values: Mapping[str, Any]) -> str:
    return render_calls(values, "SFTConfig", CALLS)


DIALECT = Dialect(
    name="unsloth",
    tool="Unsloth",
    command="python {config}",
    names={
        "max_length": "from_pretrained.max_seq_length",
        "gradient_checkpointing": "get_peft_model.use_gradient_checkpointing",
        "lora_r": "get_peft_model.r",
        "lora_alpha": "get_peft_model.lora_alpha",
        "lora_dropout": "get_peft_model.lora_dropout",
    },
    values={
        "gradient_checkpointing": {True: {"get_peft_model.use_gradient_checkpointing": "unsloth"}},
        "attn_implementation": {"auto": {}},  # Unsloth has kernels of its own
        "peft_method": {"none": {}, "lora": {"get_peft_model()": True}},
        "quantization": {
            "none": {"from_pretrained.load_in_4bit": False},
            "int8": {"from_pretrained.load_in_4bit": False, "from_pretrained.load_in_8bit": True},
            "nf4": {"from_pretrained.load_in_4bit": True},
        },
        "bnb_4bit_use_double_quant": {True: {}},
        "bnb_4bit_compute_dtype": {"auto": {}},
        "weights_dtype": {"auto": {}},
    },
    read_as={"get_peft_model.use_gradient_checkpointing": {"True": True, "true": True}},
    defaults={"quantization": "nf4", "bnb_4bit_use_double_quant": True, "gradient_checkpointing": True},
    nested=True,
    leaves={
        "per_device_train_batch_size": ("DataLoader.batch_size",),
        "from_pretrained.max_seq_length": ("max_length", "max_seq_length"),
    },
    certain_keys=frozenset({"unsloth"}),
    form="python",
    render=render_cell,
    model_keys=("from_pretrained.model_name",),
    data_keys=("load_dataset.path", "load_dataset.data_files"),
)

CLI_DIALECT = Dialect(
    name="unsloth-cli",
    tool="Unsloth's command line",
    command="unsloth train --config {config}",
    programs=("unsloth",),
    names={
        "per_device_train_batch_size": "training.batch_size",
        "gradient_accumulation_steps": "training.gradient_accumulation_steps",
        "learning_rate": "training.learning_rate",
        "warmup_steps": "training.warmup_steps",
        "weight_decay": "training.weight_decay",
        "num_train_epochs": "training.num_epochs",
        "max_steps": "training.max_steps",
        "max_length": "training.max_seq_length",
        "save_steps": "training.save_steps",
        "seed": "training.random_seed",
        "lora_r": "lora.lora_r",
        "lora_alpha": "lora.lora_alpha",
        "lora_dropout": "lora.lora_dropout",
    },
    values={
        "max_steps": {None: {"training.max_steps": 0}},
        "peft_method": {"none": {"training.training_type": "full"}, "lora": {"training.training_type": "lora"}},
        "gradient_checkpointing": {
            True: {"training.gradient_checkpointing": "unsloth"},
            False: {"training.gradient_checkpointing": "none"},
        },
        "quantization": {"none": {"training.load_in_4bit": False}, "nf4": {"training.load_in_4bit": True}},
        "attn_implementation": {"auto": {}},
        "bnb_4bit_use_double_quant": {True: {}},
        "bnb_4bit_compute_dtype": {"auto": {}},
        "weights_dtype": {"auto": {}},
    },
    also_read={"gradient_checkpointing": (({"training.gradient_checkpointing": "true"}, True),)},
    defaults={
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "learning_rate": 2e-4, "warmup_steps": 5.0,
        "weight_decay": 0.01, "num_train_epochs": 3.0, "max_length": 2048, "lora_r": 64, "lora_alpha": 16,
        "lora_dropout": 0.0, "quantization": "nf4", "bnb_4bit_use_double_quant": True, "peft_method": "lora",
        "gradient_checkpointing": True,
    },
    whole=frozenset({"num_train_epochs", "warmup_steps"}),
    extends_hf=False,
    nested=True,
    file_keys=frozenset({
        "training.training_type", "training.train_on_completions", "training.random_seed", "lora.vision_all_linear",
        "lora.use_loftq", "lora.finetune_mlp_modules", "logging.enable_tensorboard", "data.local_dataset",
    }),
    model_keys=("model",),
    data_keys=("data.dataset", "data.local_dataset"),
)  # fmt: skip
