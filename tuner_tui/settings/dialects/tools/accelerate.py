"""accelerate 1.15, `accelerate launch --config_file`: how it starts a script of the user's."""

from tuner_tui.settings.dialects.dialect import Dialect

DIALECT = Dialect(
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
    required={"compute_environment": "LOCAL_MACHINE", "distributed_type": "NO", "num_machines": 1, "num_processes": 1},
    extends_hf=False,
    nested=True,
    file_keys=frozenset({
        "compute_environment", "distributed_type", "num_machines", "machine_rank", "mixed_precision", "fsdp_config",
        "deepspeed_config", "main_training_function", "downcast_bf16", "num_processes",
    }),
    script_unknown=True,
    model_keys=(),
    data_keys=(),
)  # fmt: skip
