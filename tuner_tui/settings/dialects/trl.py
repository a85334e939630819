"""TRL 1.16.0, `trl sft`: TrainingArguments and what TRL adds; names read from its dataclasses."""

from tuner_tui.settings.dialects.dialect import Dialect

TRL = Dialect(
    name="trl",
    tool="TRL",
    command="trl sft --config {config}",
    names={
        "gradient_checkpointing": "gradient_checkpointing",  # TRL defines the old name itself, on by default
        "max_length": "max_length",
        "attn_implementation": "attn_implementation",
        "lora_r": "lora_r",
        "lora_alpha": "lora_alpha",
        "lora_dropout": "lora_dropout",
    },
    values={
        "attn_implementation": {"auto": {}},
        "peft_method": {
            "none": {"use_peft": False},
            "lora": {"use_peft": True},
            "dora": {"use_peft": True, "use_dora": True},
        },
    },
    file_keys=frozenset({"use_peft", "dataset_name", "completion_only_loss", "assistant_only_loss"}),
)
