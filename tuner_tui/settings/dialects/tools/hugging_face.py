"""The Hugging Face Trainer: `TrainingArguments` on a command line, in YAML or JSON, and in Python source."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.hf import IGNORED_ARGUMENTS
from tuner_tui.settings.dialects.python_source import render_calls
from tuner_tui.settings.dialects.script_search import CONFIG_OPTION, find_script, read_source
from tuner_tui.settings.model import FIELDS, Value


def to_arguments(values: Mapping[str, Any]) -> list[str]:
    """`--key value` for every value that is not None; booleans as `HfArgumentParser` reads them."""
    return [
        word for name, value in values.items() if value is not None for word in (f"--{name}", _format_argument(value))
    ]


def render_arguments(values: Mapping[str, Any]) -> str:
    words = to_arguments(values)
    pairs = (shlex.join(words[index : index + 2]) for index in range(0, len(words), 2))
    return " \\\n".join(pairs)


def _format_argument(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


SWITCHES = ("use_lora", "lora_enable", "lora", "use_peft", "is_peft", "lora.enabled", "lora.use_lora", "peft.enabled")


def read_scripts_own(values: Mapping[str, Any]) -> Mapping[str, Value]:
    """Adapter, quantization and precision by the options that QLoRA's, LLaVA's and diffusers' scripts have for them.

    A file with the rank of LoRA trains by it, unless a switch of its own says otherwise.
    """
    found: dict[str, Value] = {}
    switches = [str(values[key]).lower() for key in SWITCHES if values.get(key) is not None]
    if any(word in ("true", "1") for word in switches) or (not switches and values.get("lora_r") is not None):
        found["peft_method"] = "lora"
    kinds = {"4": str(values.get("quant_type", "nf4")), "8": "int8"}
    if str(values.get("bits")) in kinds:
        found["quantization"] = kinds[str(values["bits"])]
    precision = {"no": "fp32", "bf16": "bf16", "fp16": "fp16"}.get(str(values.get("mixed_precision")))
    if (
        precision is not None and not {"bf16", "fp16"} & values.keys()
    ):  # the script's own option wins over the launcher's
        found["precision"] = precision
    return found


SCRIPTS_NAMES: Mapping[str, tuple[str, ...]] = {
    "per_device_train_batch_size": ("micro_train_batch_size", "micro_batch_size", "train_batch_size", "batch_size"),
    "per_device_eval_batch_size": ("eval_batch_size",),
    "gradient_accumulation_steps": ("grad_accum_steps", "accumulation_steps"),
    "learning_rate": ("lr",),
    "num_train_epochs": ("num_epochs", "epochs", "max_epochs"),
    "max_grad_norm": ("clip_grad_norm", "grad_clip"),
    "dataloader_num_workers": ("num_workers",),
    "lora_r": ("lora_rank", "r"),
    "attn_implementation": ("attn_impl",),
    "max_length": ("max_input_length", "context_length"),
}
"""What scripts of users call the arguments."""

BATCHES = frozenset({"per_device_train_batch_size", "per_gpu_train_batch_size"})
OF_TRAINER = frozenset({
    "bf16", "fp16", "tf32", "do_train", "deepspeed", "evaluation_strategy", "eval_strategy", "save_strategy",
    "save_total_limit", "logging_steps", "overwrite_output_dir", "optim", "remove_unused_columns",
})  # fmt: skip
"""Options that say together that a script takes all of TrainingArguments; a parser of its own refuses others."""


def takes_all_arguments(options: Mapping[str, Any], _section: str) -> bool:
    """Whether the options are those of a script that takes TrainingArguments."""
    return bool(BATCHES & options.keys()) and bool(OF_TRAINER & options.keys())


CALLS = {
    "LoraConfig": "lora_config = LoraConfig(",
    "BitsAndBytesConfig": "quantization_config = BitsAndBytesConfig(",
    "from_pretrained": "model = AutoModelForCausalLM.from_pretrained(\n    MODEL,",
    "tokenizer": "tokens = tokenizer(\n    TEXT,\n    truncation=True,",
}


def render_script(values: Mapping[str, Any]) -> str:
    return render_calls(values, "TrainingArguments", CALLS)


ADAPTERS = ("lora", "peft", "lora_config", "peft_config")
"""What the section of the adapter is called."""
SECTION_NAMES: dict[str, tuple[str, ...]] = {
    "max_length": ("max_length", "max_seq_length", "cutoff_len", "max_input_length"),
    "lora_r": ("lora_r", "lora_rank", *(f"{section}.{name}" for section in ADAPTERS for name in ("r", "rank"))),
    "lora_alpha": ("lora_alpha", *(f"{section}.alpha" for section in ADAPTERS)),
    "lora_dropout": ("lora_dropout", *(f"{section}.dropout" for section in ADAPTERS)),
}
SECTION_LEAVES: Mapping[str, tuple[str, ...]] = {
    **{
        spelling: (spelling, *SCRIPTS_NAMES.get(spelling, ()))
        for name in FIELDS
        for spelling in hf.argument_names(name)
    },
    **SECTION_NAMES,
    **{
        key: (key,) for key in ("load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type", "torch_dtype", "mixed_precision")
    },
}

READS_AND_TRAINS = r"(?s)\A(?=.*\b(?:safe_load|full_load|yaml\.load|OmegaConf\.load|YAML)\().*\b\w*Trainer\("
"""The source of a script that reads YAML itself and trains."""


def choose_command(_values: Mapping[str, Any], path: Path) -> str | None:
    """The script near the file that reads YAML and trains, with its option for the file if it has one."""
    script = find_script(path, READS_AND_TRAINS)
    if script is None:
        return None
    option = CONFIG_OPTION.search(read_source(script))
    return f"python {shlex.quote(str(script))} {'' if option is None else f'{option[1]} '}{{config}}"


KNOWN = {
    *FIELDS, *IGNORED_ARGUMENTS, *hf.RENAMED, *(name for field in FIELDS for name in hf.argument_names(field)),
    "predict_with_generate", "generation_config", "generation_max_length", "generation_num_beams",
}  # fmt: skip


def holds_arguments_only(values: Mapping[str, Any], section: str) -> bool:
    """Whether a section has nothing but arguments of TrainingArguments, so that a script hands it over as a whole."""
    inner: Any = values
    for name in section.split(".") if section else ():
        inner = inner.get(name) if isinstance(inner, Mapping) else None
    return isinstance(inner, Mapping) and inner.keys() <= KNOWN
