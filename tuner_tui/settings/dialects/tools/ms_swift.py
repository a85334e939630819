"""ms-swift 4.6.0, `swift sft`: TrainingArguments of transformers below 5.20 and its own names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner_tui.settings.dialects.dialect import Dialect, Renamed
from tuner_tui.settings.model import Value


def choose_command(values: Mapping[str, Any], path: Path) -> str:
    """`swift rlhf` for a file that says how to learn from preferences, `swift pt` by the file's name, else `sft`."""
    kind = "rlhf" if "rlhf_type" in values else "pt" if path.stem.split("_")[0] in ("pt", "pretrain") else "sft"
    return f"swift {kind} {{config}}"


def read_precision(values: Mapping[str, Any]) -> Mapping[str, Value]:
    """The precision of a file without `bf16` and `fp16`, which follow the type of the weights then."""
    word = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(str(values.get("torch_dtype")))
    return {} if word is None or {"bf16", "fp16"} & values.keys() else {"precision": word}


DIALECT = Dialect(
    name="ms-swift",
    tool="ms-swift",
    command="swift sft {config}",
    programs=("swift",),
    names={
        "gradient_checkpointing": "gradient_checkpointing",
        "max_length": "max_length",
        "attn_implementation": "attn_impl",
        "lora_r": "lora_rank",
        "lora_alpha": "lora_alpha",
        "lora_dropout": "lora_dropout",
        "bnb_4bit_use_double_quant": "bnb_4bit_use_double_quant",
    },
    values={
        "attn_implementation": {"auto": {}},
        "train_sampling_strategy": {
            "random": {"group_by_length": False},
            "group_by_length": {"group_by_length": True},
        },
        "peft_method": {
            "none": {"tuner_type": "full"},
            "lora": {"tuner_type": "lora"},
            "dora": {"tuner_type": "lora", "use_dora": True},
        },
        "quantization": {
            "none": {"quant_bits": None, "quant_method": None},
            "int8": {"quant_bits": 8, "quant_method": "bnb"},
            "nf4": {"quant_bits": 4, "quant_method": "bnb", "bnb_4bit_quant_type": "nf4"},
            "fp4": {"quant_bits": 4, "quant_method": "bnb", "bnb_4bit_quant_type": "fp4"},
        },
        "bnb_4bit_compute_dtype": {
            "auto": {},
            "fp32": {"bnb_4bit_compute_dtype": "float32"},
            "bf16": {"bnb_4bit_compute_dtype": "bfloat16"},
            "fp16": {"bnb_4bit_compute_dtype": "float16"},
        },
        "weights_dtype": {
            "auto": {},
            "fp32": {"torch_dtype": "float32"},
            "bf16": {"torch_dtype": "bfloat16"},
        },
    },
    warmup_ratio="warmup_ratio",
    renamed={
        "quantization_bit": Renamed("quant_bits", "renamed in ms-swift 3"),
        "train_type": Renamed("tuner_type", "renamed in ms-swift 4"),
        "sft_type": Renamed("tuner_type", "renamed in ms-swift 3 and 4"),
        "lora_dropout_p": Renamed("lora_dropout", "renamed in ms-swift 3"),
        "use_flash_attn": Renamed("attn_impl", "renamed in ms-swift 3", {True: "flash_attn"}),
        "batch_size": Renamed("per_device_train_batch_size", "renamed in ms-swift 3"),
    },
    assumed={"bnb_4bit_quant_type": "nf4"},
    also_read={"attn_implementation": (({"attn_impl": "flash_attn"}, "flash_attention_2"),)},
    read_more=read_precision,
    defaults={
        "per_device_train_batch_size": 1,
        "per_device_eval_batch_size": 1,
        "gradient_checkpointing": True,
        "peft_method": "lora",
        "lora_r": 8,
        "lora_alpha": 32,
        "lora_dropout": 0.05,
        "lr_scheduler_type": "cosine",
        "weight_decay": 0.1,
        "bnb_4bit_use_double_quant": True,
    },
    file_keys=frozenset(
        {
            "tuner_type",
            "train_type",
            "attn_impl",
            "quant_bits",
            "rlhf_type",
            "target_modules",
            "split_dataset_ratio",
            "model_author",
            "ENV",
            "use_hf",
            "swift_version",
        }
    ),
    certain_keys=frozenset({"tuner_type", "train_type", "attn_impl", "quant_bits", "rlhf_type"}),
    choose_command=choose_command,
    model_keys=("model", "model_id_or_path"),
    data_keys=("dataset",),
)
