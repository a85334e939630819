"""DeepSpeed's JSON file, which a script of the user's or a trainer is given."""

from tuner_tui.settings.dialects.dialect import Dialect

DIALECT = Dialect(
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
    model_keys=(),
    data_keys=(),
    form="json",
)  # fmt: skip
