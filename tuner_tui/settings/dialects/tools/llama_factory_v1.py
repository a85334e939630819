"""LLaMA-Factory v1, `USE_V1=1 llamafactory-cli sft`: its own names, in sections."""

from tuner_tui.settings.dialects.dialect import Dialect

DIALECT = Dialect(
    name="llama-factory-v1",
    tool="LLaMA-Factory v1",
    command="llamafactory-cli sft {config}",
    names={
        "per_device_train_batch_size": "micro_batch_size",
        "max_length": "cutoff_len",
        "learning_rate": "learning_rate",
        "weight_decay": "weight_decay",
        "max_grad_norm": "max_grad_norm",
        "num_train_epochs": "num_train_epochs",
        "max_steps": "max_steps",
        "gradient_checkpointing": "enable_activation_checkpointing",
        "save_steps": "save_steps",
        "logging_steps": "logging_steps",
        "seed": "seed",
        "lora_r": "peft_config.r",
        "lora_alpha": "peft_config.lora_alpha",
        "lora_dropout": "peft_config.lora_dropout",
    },
    values={
        "peft_method": {"lora": {"peft_config.name": "lora"}},
        "max_steps": {None: {}},
        "quantization": {
            "none": {},
            "int8": {"quant_config.name": "bnb", "quant_config.quantization_bit": 8},
            "nf4": {"quant_config.name": "bnb", "quant_config.quantization_bit": 4},
        },
        "bnb_4bit_compute_dtype": {"auto": {}},
        "weights_dtype": {"auto": {}},
    },
    extends_hf=False,
    nested=True,
    file_keys=frozenset(
        {
            "model_class",
            "peft_config.name",
            "dist_config",
            "kernel_config",
            "quant_config",
            "train_dataset",
            "init_config",
            "micro_batch_size",
            "cutoff_len",
        }
    ),
    certain_keys=frozenset({"dist_config", "kernel_config", "quant_config", "init_config"}),
    model_keys=("model",),
    data_keys=("train_dataset",),
    environment={"model": ("USE_V1", "1")},
)
