"""What a training tool's file needs before its first step: Python packages, and files and folders that it names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner_tui.settings.dialects.dialect import TEMPLATE, Dialect
from tuner_tui.settings.model import shorten_text

OFF_WORDS = frozenset({"", "none", "null", "no", "false", "off", "auto", "disabled"})
TRACKERS = ("wandb", "tensorboard", "mlflow", "swanlab", "trackio", "comet_ml", "clearml", "neptune")


@dataclass(frozen=True, slots=True)
class PackageNeed:
    """A package by distribution name, and the key and value that ask for it."""

    package: str
    asked_by: str


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A file or folder that a key of the file names; `kind` is data, model or another word for the sentence."""

    key: str
    path: str
    kind: str


def _on(value: object) -> bool:
    return value is not None and value is not False and value != 0 and str(value).strip().lower() not in OFF_WORDS


def _is(*words: str) -> Callable[[object], bool]:
    return lambda value: str(value).strip().lower() in words


def _has(word: str) -> Callable[[object], bool]:
    return lambda value: word in str(value).lower()


PACKAGE_NEEDS: tuple[tuple[str, str, Callable[[object], bool]], ...] = (
    (
        "flash-attn",
        r"attn_implementation|attn_impl|flash_attn|_attn_implementation",
        _is("flash_attention_2", "fa2", "flash_attn"),
    ),
    ("flash-attn", r"flash_attention|use_flash_attention_2|use_flash_attn|use_flash_attention", _is("true", "1")),
    ("bitsandbytes", r"load_in_[48]bit", _on),
    ("bitsandbytes", r"adapter", _is("qlora")),
    ("bitsandbytes", r"quantization_bit", _on),
    ("bitsandbytes", r"quant_method|quantization_method", _is("bnb", "bitsandbytes")),
    ("bitsandbytes", r"quantize", _has("bnb")),
    (
        "bitsandbytes",
        r"optim|optimizer|optimizer_name",
        lambda value: bool(re.search(r"_8bit|bnb|^paged_", str(value))),
    ),
    ("deepspeed", r"deepspeed|deepspeed_config_file", _on),
    ("deepspeed", r"distributed_type", _is("deepspeed")),
    ("liger-kernel", r".*liger.*", _on),
    ("liger-kernel", r"plugins", _has("liger")),
    ("unsloth", r"use_unsloth|unsloth", _on),
    ("xformers", r"xformers_attention", _on),
    ("vllm", r"use_vllm", _on),
    ("galore-torch", r"use_galore", _on),
    ("wandb", r"use_wandb|wandb_project", _on),
    *((tracker, r"report_to|log_with", _has(tracker)) for tracker in TRACKERS),
)
"""Package, pattern of the last part of a key, and which of its values need the package."""

PATH_KEYS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "train_file", "validation_file", "test_file", "data_files", "json_path", "dataset_path", "data_path",
            "path", "dataset", "datasets", "dataset_name", "train_dataset", "val_dataset", "eval_dataset",
            "test_datasets", "pretraining_dataset", "dataset_dir", "train_data_path",
        ),
        "data",
    ),
    **dict.fromkeys(
        ("model_name_or_path", "base_model", "model", "model_name", "checkpoint_dir", "tokenizer_name_or_path",
         "adapter_name_or_path", "lora_model_dir", "model_id_or_path"),
        "model",
    ),
    "deepspeed": "DeepSpeed configuration",
    "deepspeed_config_file": "DeepSpeed configuration",
    "resume_from_checkpoint": "checkpoint",
    "chat_template_path": "chat template",
}  # fmt: skip
FILE_SUFFIXES = (".json", ".jsonl", ".csv", ".tsv", ".parquet", ".txt", ".arrow", ".yaml", ".yml", ".jinja")
LLAMA_FACTORY_KEYS = frozenset({"finetuning_type", "stage"})
"""With one of them `dataset` holds names from the `dataset_info.json` in `dataset_dir`."""
LOCAL_PREFIXES = ("./", "../", "/", "~/")


def required_packages(values: Mapping[str, Any]) -> tuple[PackageNeed, ...]:
    """The packages that the values ask for, each once."""
    found: dict[str, PackageNeed] = {}
    for key, value in _leaves(values):
        for package, pattern, needs in PACKAGE_NEEDS:
            if re.fullmatch(pattern, key.rpartition(".")[2]) and not _is_open(value) and needs(value):
                found.setdefault(package, PackageNeed(package, f"{shorten_text(key)}: {shorten_text(str(value))}"))
    return tuple(found.values())


def named_paths(values: Mapping[str, Any], dialect: Dialect | None = None) -> tuple[NamedPath, ...]:
    """The files and folders on this machine that the values name; what may be a name on the Hub is none.

    Keys are those of all tools, and those by which the `dialect` of the file names model and data.
    """
    own = (
        {}
        if dialect is None
        else {**dict.fromkeys(dialect.model_keys, "model"), **dict.fromkeys(dialect.data_keys, "data")}
    )
    found = []
    for key, value in _leaves(values):
        kind = own.get(key) or PATH_KEYS.get(key.rpartition(".")[2])
        if kind is None or not isinstance(value, str) or _is_open(value):
            continue
        for word in value.split(",") if kind == "data" else (value,):
            path = word.strip().partition("#")[0]  # ms-swift's number of samples
            if path.startswith(LOCAL_PREFIXES) or (path.endswith(FILE_SUFFIXES) and "://" not in path):
                found.append(NamedPath(key, path, kind))
    listed = values.get("dataset_dir", "data")
    by_name = bool(values.get("dataset")) and bool(LLAMA_FACTORY_KEYS & values.keys())
    if by_name and isinstance(listed, str) and not listed.startswith(("ONLINE", "REMOTE:")):
        found.append(NamedPath("dataset_dir", f"{listed}/dataset_info.json", "list of datasets"))
    return tuple(dict.fromkeys(found))


def _leaves(values: object, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no mapping or list, under its dotted key; those of a list have the key of the list."""
    if isinstance(values, Mapping):
        for name, value in values.items():
            yield from _leaves(value, f"{key}.{name}" if key else str(name))
    elif isinstance(values, list):
        for value in values:
            yield from _leaves(value, key)
    else:
        yield key, values


def _is_open(value: object) -> bool:
    return isinstance(value, str) and TEMPLATE.search(value) is not None
