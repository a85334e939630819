"""Arguments that were renamed or removed between releases, and what to write in their place."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies.training_loop import CORRECT_COMMAND
from tuner_tui.advice.situation import Situation

UNKNOWN = (
    re.compile(r"(?:unexpected|invalid) keyword argument '(\w+)'"),
    re.compile(r"unrecognized arguments: (.+)"),
    re.compile(r"not used by the HfArgumentParser: \[(.+?)\]"),
    re.compile(r"No such option:? '?(--[\w-]+)"),
    re.compile(r"has no attribute '(\w+)'"),
)
OPTION = re.compile(r"--([A-Za-z][\w-]*)|'(\w+)'|^(\w+)$")

RENAMED: Mapping[str, str] = {
    "evaluation_strategy": "eval_strategy (transformers 4.41 and newer)",
    "eval_strategy": "evaluation_strategy (transformers before 4.41)",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "no_cuda": "use_cpu",
    "use_cpu": "no_cuda (transformers before 4.34)",
    "warmup_ratio": "warmup_steps below 1, a share of all steps (transformers 5)",
    "group_by_length": "train_sampling_strategy=group_by_length (transformers 5.2 and newer)",
    "train_sampling_strategy": "group_by_length=True (transformers before 5.2)",
    "activation_checkpointing": "gradient_checkpointing (transformers before 5.23)",
    "gradient_checkpointing": "activation_checkpointing (transformers 5.23 and newer)",
    "adafactor": "optim=adafactor",
    "sharded_ddp": "fsdp",
    "push_to_hub_model_id": "hub_model_id",
    "push_to_hub_token": "hub_token",
    "include_inputs_for_metrics": "include_for_metrics=['inputs']",
    "dispatch_batches": "accelerator_config={'dispatch_batches': …}",
    "split_batches": "accelerator_config={'split_batches': …}",
    "tokenizer": "processing_class (transformers 4.46 and newer)",
    "processing_class": "tokenizer (before transformers 4.46 and trl 0.12)",
    "torch_dtype": "dtype (transformers 4.56 and newer)",
    "dtype": "torch_dtype (transformers before 4.56)",
    "use_auth_token": "token",
    "use_flash_attention_2": "attn_implementation=flash_attention_2",
    "load_in_4bit": "quantization_config=BitsAndBytesConfig(load_in_4bit=True)",
    "load_in_8bit": "quantization_config=BitsAndBytesConfig(load_in_8bit=True)",
    "resume_from_checkpoint": "ckpt_path of Trainer.fit (Lightning 2)",
    "max_seq_length": "max_length in SFTConfig (newer releases of trl)",
    "dataset_text_field": "SFTConfig instead of SFTTrainer (newer releases of trl)",
    "ignore_verifications": "verification_mode='no_checks'",
}
"""The name or value to write in place of an argument."""
REMOVED: Mapping[str, str] = {
    "fp16_opt_level": "it belonged to NVIDIA Apex; fp16 or bf16 alone is enough",
    "half_precision_backend": "it chose NVIDIA Apex; fp16 or bf16 alone is enough",
    "fp16_backend": "it chose NVIDIA Apex; fp16 or bf16 alone is enough",
    "overwrite_output_dir": "an existing folder is reused; resume_from_checkpoint decides what is resumed",
    "save_safetensors": "checkpoints are always safetensors",
    "logging_dir": "use the environment variable TENSORBOARD_LOGGING_DIR",
    "use_mps_device": "an Apple GPU is used automatically",
    "jit_mode_eval": "use torch_compile",
    "use_ipex": "PyTorch itself supports these devices",
    "no_deprecation_warning": "transformers no longer has its own AdamW",
}
"""Arguments that were removed, and what happens without them."""


def unknown_argument(message: str) -> str | None:
    """The first argument of the message that was renamed or removed, else the first unknown one; None without one."""
    names: list[str] = []
    for pattern in UNKNOWN:
        for match in pattern.finditer(message):
            found = [next(filter(None, groups)).replace("-", "_") for groups in OPTION.findall(match[1])]
            names += found or [match[1]]
    known = [name for name in names if name in RENAMED or name in REMOVED]
    return next(iter(known or names), None)


def ladder(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """The remedies for wrong arguments; `where` is the argument that the program does not know."""
    if where is None:
        return (CORRECT_COMMAND,)
    if where in RENAMED:
        title, why = (
            f"{where} → {RENAMED[where]}",
            "the argument was renamed; the installed release uses the other name",
        )
    elif where in REMOVED:
        title, why = f"remove {where}", f"the argument was removed: {REMOVED[where]}"
    else:
        return (CORRECT_COMMAND,)
    return (Remedy(title=title, why=why, effect="the training starts", source="the libraries' release notes"),)
