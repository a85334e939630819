"""Hydra 1.3: the user's own keys, found by what they end with; single values are given as `key=value`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner_tui.settings.dialects.dialect import LIGHTNING_WORDS, Dialect, lightning_precision
from tuner_tui.settings.dialects.hydra_composition import HYDRA_MAIN


def format_override(value: Any) -> str:
    """A value as Hydra's grammar reads it: `true`, `null`, `4e-05`, `bf16-mixed`."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def render_overrides(values: Mapping[str, Any]) -> str:
    """`key=value` words for a command line."""
    return " ".join(f"{key}={format_override(value)}" for key, value in values.items())


def set_override(words: list[str], key: str, value: str) -> None:
    """Set `key=value` in a command line, in place of an override of the same key."""
    for index, word in enumerate(words):
        left, equals, _ = word.partition("=")
        if equals and left.lstrip("+") == key:
            words[index] = f"{left}={value}"
            return
    words.append(f"{key}={value}")


DIALECT = Dialect(
    name="hydra",
    tool="Hydra",
    command="python {script} --config-path {folder} --config-name {stem}",
    # Sections as in the templates that most projects start from; a file's own keys take their place.
    names={
        "precision": "trainer.precision",
        "per_device_train_batch_size": "data.batch_size",
        "per_device_eval_batch_size": "data.eval_batch_size",
        "gradient_accumulation_steps": "trainer.accumulate_grad_batches",
        "learning_rate": "model.optimizer.lr",
        "weight_decay": "model.optimizer.weight_decay",
        "max_grad_norm": "trainer.gradient_clip_val",
        "num_train_epochs": "trainer.max_epochs",
        "max_steps": "trainer.max_steps",
        "warmup_steps": "model.scheduler.warmup_steps",
        "max_length": "data.max_length",
        "gradient_checkpointing": "model.gradient_checkpointing",
        "torch_compile": "model.compile",
        "dataloader_num_workers": "data.num_workers",
        "dataloader_pin_memory": "data.pin_memory",
        "dataloader_persistent_workers": "data.persistent_workers",
        "dataloader_prefetch_factor": "data.prefetch_factor",
        "lora_r": "model.lora.r",
        "lora_alpha": "model.lora.lora_alpha",
        "lora_dropout": "model.lora.lora_dropout",
        "logging_steps": "trainer.log_every_n_steps",
        "seed": "seed",
    },
    values={
        "precision": lightning_precision("trainer.precision"),
        "max_steps": {None: {"trainer.max_steps": -1}},
        "dataloader_prefetch_factor": {None: {}},
        "quantization": {
            "none": {"model.load_in_4bit": False, "model.load_in_8bit": False},
            "int8": {"model.load_in_4bit": False, "model.load_in_8bit": True},
            "nf4": {"model.load_in_4bit": True, "model.load_in_8bit": False},
        },
    },
    read_as={"trainer.precision": LIGHTNING_WORDS},
    whole=frozenset({"num_train_epochs", "warmup_steps"}),
    extends_hf=False,
    nested=True,
    leaves={
        "data.batch_size": ("per_device_train_batch_size", "train_batch_size", "micro_batch_size", "batch_size"),
        "data.eval_batch_size": ("per_device_eval_batch_size", "eval_batch_size", "val_batch_size"),
        "trainer.accumulate_grad_batches": (
            "gradient_accumulation_steps", "accumulate_grad_batches", "accumulation_steps", "grad_accum_steps",
        ),
        "model.optimizer.lr": ("learning_rate", "optimizer.lr", "optim.lr", "lr"),
        "model.optimizer.weight_decay": ("optimizer.weight_decay", "optim.weight_decay", "weight_decay"),
        "trainer.gradient_clip_val": ("max_grad_norm", "gradient_clip_val", "grad_clip", "clip_grad_norm"),
        "trainer.max_epochs": ("num_train_epochs", "max_epochs", "num_epochs", "n_epochs", "max_epoch", "epochs"),
        "trainer.max_steps": ("max_steps", "max_iters"),
        "model.scheduler.warmup_steps": ("warmup_steps", "num_warmup_steps"),
        "data.max_length": ("max_length", "max_seq_length", "max_seq_len", "seq_length", "block_size"),
        "model.gradient_checkpointing": ("gradient_checkpointing", "activation_checkpointing"),
        "model.compile": ("torch_compile", "compile"),
        "data.num_workers": ("dataloader_num_workers", "num_workers"),
        "data.pin_memory": ("dataloader_pin_memory", "pin_memory"),
        "data.persistent_workers": ("dataloader_persistent_workers", "persistent_workers"),
        "data.prefetch_factor": ("dataloader_prefetch_factor", "prefetch_factor"),
        "model.lora.r": ("lora_r", "lora_rank", "lora.r", "lora.rank"),
        "model.lora.lora_alpha": ("lora_alpha", "lora.alpha"),
        "model.lora.lora_dropout": ("lora_dropout", "lora.dropout"),
        "trainer.log_every_n_steps": ("logging_steps", "log_every_n_steps", "log_interval"),
        "seed": ("seed", "random_seed"),
        "trainer.precision": ("precision", "mixed_precision"),
        "model.load_in_4bit": ("load_in_4bit",),
        "model.load_in_8bit": ("load_in_8bit",),
    },
    certain_keys=frozenset({
        "defaults", "hydra", "hydra.run.dir", "hydra.sweep.dir", "hydra.job.chdir", "hydra.output_subdir",
        "exp_manager.name", "exp_manager.exp_dir", "trainer._target_", "model._target_", "data._target_",
        "datamodule._target_", "optimizer._target_",
    }),
    script_marker=HYDRA_MAIN,
    form="overrides",
    render=render_overrides,
    model_keys=("model_name_or_path", "model.model_name_or_path", "model.pretrained_model_name_or_path", "model.name"),
    data_keys=("dataset_name", "data.dataset_name", "dataset.name", "data.path"),
)  # fmt: skip
