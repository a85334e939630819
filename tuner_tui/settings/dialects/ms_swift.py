"""ms-swift 4.6.0, `swift sft`: TrainingArguments of transformers below 5.20 and its own names."""

from tuner_tui.settings.dialects.dialect import Dialect

MS_SWIFT = Dialect(
    name="ms-swift",
    tool="ms-swift",
    command="swift sft {config}",
    names={
        "gradient_checkpointing": "gradient_checkpointing",
        "max_length": "max_length",
        "attn_implementation": "attn_impl",
        "lora_r": "lora_rank",
        "lora_alpha": "lora_alpha",
        "lora_dropout": "lora_dropout",
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
    },
    warmup_ratio="warmup_ratio",
    file_keys=frozenset({"tuner_type", "train_type", "attn_impl", "quant_bits"}),
)
