"""litgpt 0.5.13, `litgpt finetune_lora` and its other trainings: jsonargparse's YAML."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner_tui.settings.dialects.dialect import LIGHTNING_WORDS, Dialect, lightning_precision
from tuner_tui.settings.model import Value


def choose_command(values: Mapping[str, Any], _path: Path) -> str:
    """The training whose arguments the file has; the checkpoint is the command's first argument."""
    if "model_name" in values or "initial_checkpoint_dir" in values:
        return f"litgpt pretrain {shlex.quote(str(values.get('model_name') or ''))} --config {{config}}"
    kind = "finetune_lora" if "lora_r" in values else "finetune_full"
    return f"litgpt {kind} {shlex.quote(str(values.get('checkpoint_dir') or ''))} --config {{config}}"


def read_training(values: Mapping[str, Any]) -> Mapping[str, Value]:
    """LoRA for a file with its rank, since the command says how to train; accumulation from the global batch.

    Warmup may be a fraction of one epoch, where the setting is one of all steps.
    """
    found: dict[str, Value] = {"peft_method": "lora"} if "lora_r" in values else {}
    whole, samples = values.get("train.global_batch_size"), _samples_at_once(values)
    if isinstance(whole, int) and samples is not None:
        found["gradient_accumulation_steps"] = max(1, whole // samples)
    fraction, epochs = values.get("train.lr_warmup_fraction"), values.get("train.epochs", 1)
    if isinstance(fraction, float) and isinstance(epochs, int) and 0 < fraction < epochs:
        found["warmup_steps"] = fraction / epochs
    return found


def name_global_batch(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """litgpt's own name for accumulation: the samples of all devices between two updates."""
    steps, samples = values.get(ACCUMULATION), _samples_at_once(values)
    if not isinstance(steps, int):
        return {}
    if samples is None:
        return {ACCUMULATION: None}
    return {"train.global_batch_size": steps * samples, ACCUMULATION: None}


def _samples_at_once(values: Mapping[str, Any]) -> int | None:
    micro, devices = values.get("train.micro_batch_size", 1), values.get("devices", 1)
    return micro * devices if isinstance(micro, int) and isinstance(devices, int) and micro * devices > 0 else None


ACCUMULATION = "train.accumulation"
"""Stands for accumulation until the global batch is known; in no file."""

DIALECT = Dialect(
    name="litgpt",
    tool="litgpt",
    command="litgpt finetune_lora CHECKPOINT --config {config}",
    programs=("litgpt",),
    names={
        "precision": "precision",
        "per_device_train_batch_size": "train.micro_batch_size",
        "gradient_accumulation_steps": ACCUMULATION,
        "learning_rate": "optimizer.init_args.lr",
        "weight_decay": "optimizer.init_args.weight_decay",
        "warmup_steps": "train.lr_warmup_steps",
        "max_grad_norm": "train.max_norm",
        "num_train_epochs": "train.epochs",
        "max_steps": "train.max_steps",
        "max_length": "train.max_seq_length",
        "dataloader_num_workers": "data.init_args.num_workers",
        "lora_r": "lora_r",
        "lora_alpha": "lora_alpha",
        "lora_dropout": "lora_dropout",
        "logging_steps": "train.log_interval",
        "save_steps": "train.save_interval",
        "seed": "seed",
    },
    values={
        "precision": lightning_precision("precision"),
        "max_steps": {None: {}},
        "quantization": {
            "none": {"quantize": None},
            "int8": {"quantize": "bnb.int8-training"},
            "nf4": {"quantize": "bnb.nf4"},
            "fp4": {"quantize": "bnb.fp4"},
        },
        "bnb_4bit_use_double_quant": {False: {}},
        "bnb_4bit_compute_dtype": {"auto": {}},
        "weights_dtype": {"auto": {}},
    },
    also_read={
        "quantization": (({"quantize": "bnb.nf4-dq"}, "nf4"), ({"quantize": "bnb.fp4-dq"}, "fp4")),
        "bnb_4bit_use_double_quant": (({"quantize": "bnb.nf4-dq"}, True), ({"quantize": "bnb.fp4-dq"}, True)),
    },
    read_more=read_training,
    complete=name_global_batch,
    computed={"gradient_accumulation_steps": "train.global_batch_size"},
    defaults={"per_device_train_batch_size": 1, "num_train_epochs": 5.0, "warmup_steps": 100.0},
    read_as={"precision": LIGHTNING_WORDS},
    whole=frozenset({"num_train_epochs", "warmup_steps"}),
    extends_hf=False,
    nested=True,
    file_keys=frozenset({
        "checkpoint_dir", "out_dir", "quantize", "lora_query", "lora_projection", "logger_name",
        "initial_checkpoint_dir", "train.micro_batch_size", "train.global_batch_size", "train.lr_warmup_steps",
        "train.save_interval", "train.log_interval", "train.max_seq_length", "eval.interval", "eval.max_new_tokens",
        "eval.max_iters",
    }),
    leaves={  # of releases that made the optimizer themselves
        "optimizer.init_args.lr": ("train.learning_rate",),
        "optimizer.init_args.weight_decay": ("train.weight_decay",),
    },
    choose_command=choose_command,
    model_keys=("checkpoint_dir", "model_name"),
    data_keys=("data.init_args.json_path", "data.class_path", "data"),
)  # fmt: skip
