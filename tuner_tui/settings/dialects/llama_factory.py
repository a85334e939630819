"""LLaMA-Factory 0.9.5, `llamafactory-cli train`: TrainingArguments of transformers 4.55 to 5.6 and its own names."""

from tuner_tui.settings.dialects.dialect import Dialect

LLAMA_FACTORY = Dialect(
    name="llama-factory",
    tool="LLaMA-Factory",
    command="llamafactory-cli train {config}",
    names={
        "max_length": "cutoff_len",
        "lora_r": "lora_rank",
        "lora_alpha": "lora_alpha",
        "lora_dropout": "lora_dropout",
    },
    values={
        # It never looks at Trainer's gradient_checkpointing.
        "gradient_checkpointing": {
            True: {"disable_gradient_checkpointing": False},
            False: {"disable_gradient_checkpointing": True},
        },
        "attn_implementation": {
            "auto": {"flash_attn": "auto"},
            "eager": {"flash_attn": "disabled"},
            "sdpa": {"flash_attn": "sdpa"},
            "flash_attention_2": {"flash_attn": "fa2"},
            "flash_attention_3": {"flash_attn": "fa3"},
        },
        "peft_method": {
            "none": {"finetuning_type": "full"},
            "lora": {"finetuning_type": "lora"},
            "dora": {"finetuning_type": "lora", "use_dora": True},
        },
    },
    warmup_ratio="warmup_ratio",
    file_keys=frozenset({"finetuning_type", "cutoff_len", "lora_target", "template", "stage"}),
)
