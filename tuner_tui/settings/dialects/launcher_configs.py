"""Files of launchers, which start a script of the user's: accelerate 1.15 and DeepSpeed's JSON."""

from tuner_tui.settings.dialects.dialect import Dialect

ACCELERATE = Dialect(
    name="accelerate",
    tool="accelerate",
    command="accelerate launch --config_file {config} train.py",
    names={"gradient_accumulation_steps": "deepspeed_config.gradient_accumulation_steps"},
    values={
        "precision": {
            "bf16": {"mixed_precision": "bf16"},
            "fp16": {"mixed_precision": "fp16"},
            "fp32": {"mixed_precision": "no"},
        },
        "torch_compile": {
            True: {"dynamo_config.dynamo_backend": "INDUCTOR"},
            False: {"dynamo_config.dynamo_backend": "NO"},
        },
    },
    extends_hf=False,
    nested=True,
    file_keys=frozenset({
        "compute_environment", "distributed_type", "num_machines", "machine_rank", "mixed_precision", "fsdp_config",
        "deepspeed_config", "main_training_function", "downcast_bf16", "num_processes",
    }),
    script_unknown=True,
)  # fmt: skip

DEEPSPEED = Dialect(
    name="deepspeed",
    tool="DeepSpeed",
    command="deepspeed train.py --deepspeed {config}",
    names={
        "per_device_train_batch_size": "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps": "gradient_accumulation_steps",
        "max_grad_norm": "gradient_clipping",
        "learning_rate": "optimizer.params.lr",
        "weight_decay": "optimizer.params.weight_decay",
        "logging_steps": "steps_per_print",
    },
    values={
        "precision": {
            "fp32": {"bf16.enabled": False, "fp16.enabled": False},
            "bf16": {"bf16.enabled": True, "fp16.enabled": False},
            "fp16": {"bf16.enabled": False, "fp16.enabled": True},
        },
    },
    extends_hf=False,
    nested=True,
    file_keys=frozenset({
        "zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "gradient_clipping",
        "zero_allow_untested_optimizer", "steps_per_print", "wall_clock_breakdown",
    }),
    script_unknown=True,
)  # fmt: skip
