"""torchtune 0.6.1, `tune run`: recipes whose configuration has a section for each component."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner_tui.settings.dialects.dialect import Dialect
from tuner_tui.settings.fields import Value


def choose_command(values: Mapping[str, Any], path: Path) -> str:
    """The recipe that the file's name or its model's component belongs to."""
    model = values.get("model")
    component = str(model.get("_component_", "")) if isinstance(model, Mapping) else ""
    lora = any(word in component or word in path.stem for word in ("lora", "dora"))
    devices = "distributed" if "single_device" not in path.stem and "distributed" in path.stem else "single_device"
    return f"tune run {'lora' if lora else 'full'}_finetune_{devices} --config {{config}}"


def read_component(values: Mapping[str, Any]) -> Mapping[str, Value]:
    """Adapter and quantization, which the model's builder says: `torchtune.models.llama3_1.qlora_llama3_1_8b`.

    QLoRA of torchtune is torchao's nf4 with quantized scales.
    """
    builder = str(values.get("model._component_", "")).rpartition(".")[2]
    if not builder.startswith(("lora_", "qlora_")):
        return {}
    method = "dora" if values.get("model.use_dora") is True else "lora"
    quantized: dict[str, Value] = {"quantization": "nf4", "bnb_4bit_use_double_quant": True}
    return {"peft_method": method} | (quantized if builder.startswith("q") else {})


DIALECT = Dialect(
    name="torchtune",
    tool="torchtune",
    command="tune run full_finetune_single_device --config {config}",
    programs=("tune",),
    names={
        "per_device_train_batch_size": "batch_size",
        "gradient_accumulation_steps": "gradient_accumulation_steps",
        "learning_rate": "optimizer.lr",
        "weight_decay": "optimizer.weight_decay",
        "warmup_steps": "lr_scheduler.num_warmup_steps",
        "max_grad_norm": "clip_grad_norm",
        "num_train_epochs": "epochs",
        "max_length": "tokenizer.max_seq_len",
        "gradient_checkpointing": "enable_activation_checkpointing",
        "torch_compile": "compile",
        "lora_r": "model.lora_rank",
        "lora_alpha": "model.lora_alpha",
        "lora_dropout": "model.lora_dropout",
        "logging_steps": "log_every_n_steps",
        "seed": "seed",
    },
    read_more=read_component,
    values={"precision": {"bf16": {"dtype": "bf16"}, "fp32": {"dtype": "fp32"}}},
    whole=frozenset({"num_train_epochs", "warmup_steps"}),
    extends_hf=False,
    nested=True,
    file_keys=frozenset({
        "checkpointer", "metric_logger", "tokenizer", "enable_activation_checkpointing", "log_peak_memory_stats",
        "lr_scheduler", "clip_grad_norm", "max_steps_per_epoch", "epochs",
    }),
    choose_command=choose_command,
    model_keys=("checkpointer.checkpoint_dir",),
    data_keys=("dataset.source", "dataset._component_"),
)  # fmt: skip
