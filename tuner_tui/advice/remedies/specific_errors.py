"""Remedies for errors with one clear cause, such as a taken port, a renamed argument, a missing package."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies.table import remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.settings.argv import remove_options
from tuner_tui.settings.job import CommandJob

# "held" and "may be looked at" are the words of older releases, in the folders of their runs.
HELD = re.compile(
    r"port (\d+) is (?:used|held) by (process \d+.*)|process (?:uses|that may be looked at holds) port (\d+)"
)
FREE = re.compile(r"port (\d+) is free")
TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
PORT_OPTIONS = ("master_port", "rdzv_endpoint")
NODE_OPTIONS = ("--nnodes", "--num_machines", "--num-machines")


def port_ladder(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """The command with a free port, ready to apply where it can be written; then the end of the holder."""
    said = "\n".join(situation.state.exited.evidence) if situation.state.exited is not None else ""
    held, free = HELD.search(said), FREE.search(said)
    taken = None if held is None else held[1] or held[3]
    holder, free_port = remedy("end-holder"), remedy("free-port")
    if held is not None and held[2]:
        holder = replace(holder, why=f"{held[2]} uses port {taken}")
    command = None
    if isinstance(situation.job, CommandJob):
        command = command_with_free_port(situation.job.command, taken, None if free is None else free[1])
    if command is None:
        return (free_port, holder)
    return (replace(free_port, why=f"`tuner-tui run … -- {shlex.join(command)}`", command=command), holder)


def command_with_free_port(command: Sequence[str], taken: str | None, free: str | None) -> tuple[str, ...] | None:
    """`command` with the port `free` in place of `taken`, or with a launcher that chooses one.

    None where nothing in the command decides about the port, or several machines have to agree on it.
    """
    words = list(command)
    if any(_is_several(words, index) for index in range(len(words))):
        return None
    if taken is not None and free is not None:
        number = re.compile(rf"(?<!\d){taken}(?!\d)")
        if any(map(number.search, words)):
            return tuple(number.sub(free, word) for word in words)
    launcher = next((index for index, word in enumerate(words) if _is_torchrun(words, index)), None)
    if launcher is not None:
        kept = remove_options(words[launcher + 1 :], PORT_OPTIONS)
        return (*words[: launcher + 1], "--standalone", *kept)
    if any(PurePath(word).name == "accelerate" for word in words[:2]) and "launch" in words[:3]:
        at = words.index("launch") + 1
        return (*words[:at], "--main_process_port", "0", *remove_options(words[at:], ("main_process_port",)))
    return None


def _is_torchrun(words: Sequence[str], index: int) -> bool:
    return PurePath(words[index]).name == "torchrun" or (words[index] in TORCHRUN_MODULES and words[index - 1] == "-m")


def _is_several(words: Sequence[str], index: int) -> bool:
    """Whether the option at `index` asks for several machines."""
    name, equals, value = words[index].partition("=")
    value = value if equals else (words[index + 1] if index + 1 < len(words) else "")
    return name in NODE_OPTIONS and value not in ("1", "1:1")


UNKNOWN = (
    re.compile(r"(?:unexpected|invalid) keyword argument '(\w+)'"),
    re.compile(r"unrecognized arguments: (.+)"),
    re.compile(r"not used by the HfArgumentParser:\s*\[(.+?)\]"),
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
    "num_items_in_batch": "compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None) in your "
    "own trainer (transformers 4.46 and newer)",
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


def argument_ladder(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """The remedies for wrong arguments; `where` is the argument that the program does not know."""
    if where is not None and where in RENAMED:
        return (remedy("renamed-argument", name=where, new=RENAMED[where]),)
    if where is not None and where in REMOVED:
        return (remedy("removed-argument", name=where, reason=REMOVED[where]),)
    return (remedy("correct-command"),)


def matching_releases(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """How to bring releases together; `where` is a renamed argument, or the packages that take part."""
    if where in RENAMED or where in REMOVED:
        return (*argument_ladder(situation, where), *matching_releases(situation, None))
    update = "" if where is None else f"`pip install -U {where.replace(',', '')}`, or "
    return (remedy("matching-releases", packages=where or "the packages of the traceback", update=update),)
