"""Exports settings as Hugging Face `TrainingArguments` and imports such arguments as settings.

`TrainingArguments` is renamed from release to release, so the names are taken from the interpreter that trains: pass
its fields to `to_hf`. Without them the newest spelling known here (transformers 5.23) is written. Arguments of any
release can be imported; nothing is dropped without a note. The tables were read from
`dataclasses.fields(TrainingArguments)` of transformers 5.23.0 and from the releases that removed the older names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tuner_tui.settings.errors import FieldError, SettingsError
from tuner_tui.settings.model import (
    FIELDS,
    Settings,
    Value,
    check_value,
    closest_match,
    format_value,
    parse_value,
    shorten_text,
)

SCRIPT_FIELDS = frozenset({
    "max_length", "attn_implementation", "peft_method", "lora_r", "lora_alpha", "lora_dropout", "weights_dtype",
    "quantization", "bnb_4bit_compute_dtype", "bnb_4bit_use_double_quant",
})  # fmt: skip
"""Settings that no TrainingArguments has: a script passes them to the tokenizer, the model or the adapter."""


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ARGUMENTS = _split("""
    output_dir lr_scheduler_kwargs optim_args adam_beta1 adam_beta2 adam_epsilon optim_target_modules
    average_tokens_across_devices label_smoothing_factor bf16_full_eval fp16_full_eval
    activation_checkpointing_kwargs gradient_checkpointing_kwargs torch_compile_backend torch_compile_mode
    use_liger_kernel liger_kernel_config use_cache neftune_noise_alpha torch_empty_cache_steps
    auto_find_batch_size logging_strategy logging_first_step log_on_each_node logging_nan_inf_filter
    include_num_input_tokens_seen log_level log_level_replica disable_tqdm report_to run_name project
    trackio_space_id trackio_bucket_id trackio_static_space_id eval_delay prediction_loss_only eval_on_start
    eval_do_concat_batches eval_use_gather_object eval_accumulation_steps include_for_metrics
    batch_eval_metrics save_only_model save_on_each_node enable_jit_checkpoint push_to_hub hub_token
    hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision load_best_model_at_end
    metric_for_best_model greater_is_better ignore_data_skip restore_callback_states_from_checkpoint
    full_determinism data_seed use_cpu accelerator_config parallelism_config dataloader_drop_last
    dataloader_multiprocessing_context dataloader_in_order remove_unused_columns label_names
    length_column_name ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph
    ddp_backend ddp_timeout fsdp fsdp_config deepspeed debug skip_memory_metrics do_train do_eval do_predict
    resume_from_checkpoint local_rank
""")

_REMOVED_ARGUMENTS = _split("""
    adafactor dispatch_batches split_batches include_inputs_for_metrics include_tokens_per_second ipex
    xpu_backend jit_mode_eval logging_dir mp_parameters no_cuda overwrite_output_dir past_index
    push_to_hub_model_id push_to_hub_organization push_to_hub_token ray_scope save_safetensors sharded_ddp
    torchdynamo tpu_metrics_debug tpu_num_cores use_ipex use_legacy_prediction_loop use_liger use_mps_device
    fp16_backend fp16_opt_level half_precision_backend fsdp_min_num_params
    fsdp_transformer_layer_cls_to_wrap evaluate_during_training
""")

_SCRIPT_ARGUMENTS = _split("""
        model_name_or_path model_name model dataset_name dataset_config_name dataset data_path
    train_file validation_file     test_file text_column text_column_name label_column_name
    max_train_samples max_eval_samples     tokenizer_name config_name cache_dir
    model_revision trust_remote_code preprocessing_num_workers num_labels task_name
    early_stopping_patience
""")

_APEX = "an option of NVIDIA Apex, which transformers 5 no longer uses; set precision"

IGNORED_ARGUMENTS: Mapping[str, str] = {
    **dict.fromkeys(_SCRIPT_ARGUMENTS, "not a setting; an argument of the training script"),
    **dict.fromkeys(_REMOVED_ARGUMENTS, "removed from transformers 5"),
    **dict.fromkeys(_ARGUMENTS, "an argument of TrainingArguments that is not a setting here"),
    "no_cuda": "removed from transformers 5, which calls it use_cpu",
    "use_mps_device": "removed from transformers 5, which detects the device",
    "tokenizer": "renamed to processing_class; removed in transformers 5",
    "use_liger": "transformers calls it use_liger_kernel",
    "logging_dir": "removed by transformers 5.15, which reads TENSORBOARD_LOGGING_DIR",
    "push_to_hub_token": "removed from transformers 5, which calls it hub_token",
    "push_to_hub_model_id": "removed from transformers 5, which calls it hub_model_id",
    "save_safetensors": "removed from transformers 5, which always saves safetensors",
    **dict.fromkeys(("fp16_opt_level", "fp16_backend", "half_precision_backend"), _APEX),
}
"""Argument to the reason why it is ignored."""

OPTIMIZERS = _split("""
    adamw_torch adamw_torch_fused adamw_torch_xla adamw_torch_npu_fused adafactor adamw_anyprecision
    adamw_torch_4bit adamw_torch_8bit ademamix sgd adagrad adamw_bnb_8bit adamw_8bit ademamix_8bit
    lion_8bit lion_32bit paged_adamw_32bit paged_adamw_8bit paged_ademamix_32bit paged_ademamix_8bit
    paged_lion_32bit paged_lion_8bit rmsprop rmsprop_bnb rmsprop_bnb_8bit rmsprop_bnb_32bit
    galore_adamw galore_adamw_8bit galore_adafactor galore_adamw_layerwise
    galore_adamw_8bit_layerwise galore_adafactor_layerwise lomo adalomo grokadamw
    schedule_free_radam schedule_free_adamw schedule_free_sgd apollo_adamw apollo_adamw_layerwise
    stable_adamw
""")
"""`OptimizerNames` of transformers 5.23.0."""

SCHEDULES = _split("""
    linear cosine cosine_with_restarts polynomial constant constant_with_warmup inverse_sqrt
    reduce_lr_on_plateau cosine_with_min_lr cosine_warmup_with_min_lr warmup_stable_decay greedy
""")
"""`SchedulerType` of transformers 5.23.0."""

BITSANDBYTES_OPTIMIZERS = _split("""
    adamw_bnb_8bit adamw_8bit paged_adamw_32bit paged_adamw_8bit ademamix ademamix_8bit
    paged_ademamix_32bit paged_ademamix_8bit lion_32bit lion_8bit paged_lion_32bit paged_lion_8bit
    rmsprop_bnb rmsprop_bnb_8bit rmsprop_bnb_32bit
""")
"""Optimizers that come from bitsandbytes."""


ARGUMENT_RELEASES: Mapping[str, tuple[tuple[int, int] | None, tuple[int, int] | None]] = {
    "evaluation_strategy": (None, (4, 41)),  # there until 4.50, with a warning
    "eval_strategy": ((4, 41), None),
    "group_by_length": (None, (5, 2)),
    "train_sampling_strategy": ((5, 2), None),
    "warmup_ratio": (None, (5, 0)),  # there until 5.14, with a warning
    "enable_jit_checkpoint": ((5, 0), None),
    "gradient_checkpointing": (None, (5, 23)),  # there, with a warning
    "activation_checkpointing": ((5, 23), None),
}
"""Argument to the first release that has it, and the first that lacks it or warns of it; None where there is none."""


JIT = "enable_jit_checkpoint"
ARGUMENT_NAMES: Mapping[str, tuple[str, ...]] = {
    "precision": ("bf16", "fp16"),
    "warmup_steps": ("warmup_steps", "warmup_ratio"),
    "gradient_checkpointing": ("gradient_checkpointing", "activation_checkpointing"),
    "train_sampling_strategy": ("train_sampling_strategy", "group_by_length"),
    "eval_strategy": ("eval_strategy", "evaluation_strategy"),
}
"""All spellings of a setting over the releases, if there is more than its own name."""


SWITCHES = frozenset(
    {"bf16", "fp16", "activation_checkpointing", "group_by_length"}
    | {name for name, spec in FIELDS.items() if spec.kind == "bool"}
)
"""Boolean arguments, in all spellings."""


@dataclass(frozen=True, slots=True)
class ExportedSettings:
    """Settings as a tool spells them; `unsupported` names those it cannot express, `notes` says why."""

    values: Mapping[str, Any]
    unsupported: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def to_hf(
    settings: Settings,
    names: Collection[str] | None = None,
    *,
    only: Collection[str] | None = None,
    extra: Collection[str] = (),
) -> ExportedSettings:
    """The keyword arguments that give `settings` to `TrainingArguments`.

    `names`: the fields of the target's `TrainingArguments`, None for the newest known. `only`: the settings to export,
    None for all. `extra`: further names that the script accepts, such as `max_length`. A value of None means that the
    argument keeps its default.
    """
    values: dict[str, Any] = {}
    missing: list[str] = []
    notes: list[str] = []
    for name in FIELDS:
        if only is not None and name not in only:
            continue
        try:
            values.update(_export_field(settings, name, names, extra))
        except _UnsupportedError as error:
            missing.append(name)
            notes.append(str(error))
    return ExportedSettings(values, tuple(missing), tuple(notes))


def arguments_of_release(version: str) -> frozenset[str]:
    """The arguments that stand for settings in a release of transformers, such as 4.46; none that it warns of.

    Raises `SettingsError` for text that is no version.
    """
    match = re.fullmatch(r"v?(\d{1,3})(?:\.(\d{1,4})(?:[.a-z+-]\S*)?)?", version.strip())
    if match is None:
        raise SettingsError(f"'{shorten_text(version)}' is not a release of transformers (try 4.57)")
    release = (int(match[1]), int(match[2] or 0))
    names = {spelled for name in FIELDS if name not in SCRIPT_FIELDS for spelled in argument_names(name)} | {JIT}
    gone = {
        name
        for name, (first, end) in ARGUMENT_RELEASES.items()
        if (first is not None and release < first) or (end is not None and release >= end)
    }
    return frozenset(names - gone)


def arguments_of_file(keys: Collection[str]) -> frozenset[str]:
    """The arguments of the release that a file with these keys is for: of two spellings the one that it has."""
    names = set(arguments_of_release("5.23"))
    for spellings in (one for name, one in ARGUMENT_NAMES.items() if name != "precision"):
        if own := set(spellings) & set(keys):
            names = (names - set(spellings)) | own
    return frozenset(names - {JIT} if "warmup_ratio" in keys else names)


def argument_names(name: str) -> tuple[str, ...]:
    return (*ARGUMENT_NAMES.get(name, (name,)), *(other for other, same in RENAMED.items() if same == name))


def setting_of_argument(argument: str) -> str:
    """The setting that a command-line argument belongs to; the argument itself if it belongs to none."""
    name = RENAMED.get(argument, argument)
    return next((setting for setting, spellings in ARGUMENT_NAMES.items() if name in spellings), name)


class _UnsupportedError(Exception):
    """The target has no argument for this setting."""


def _export_field(
    settings: Settings, name: str, names: Collection[str] | None, extra: Collection[str]
) -> dict[str, Any]:
    value = getattr(settings, name)
    if name in SCRIPT_FIELDS:
        return _export_unchanged(name, value, extra, "is not an argument of TrainingArguments; the script sets it")
    special = _TO_HF.get(name)
    if special is not None:
        return special(value, names)
    return _export_unchanged(name, value, names, "is not known to the installed transformers")


def _export_unchanged(name: str, value: Any, names: Collection[str] | None, why: str) -> dict[str, Any]:
    if names is None or name in names:
        return {name: value}
    raise _UnsupportedError(f"{name} {why}")


def _has_argument(names: Collection[str] | None, name: str, *, newest: bool) -> bool:
    return newest if names is None else name in names


def _precision_to(value: str, names: Collection[str] | None) -> dict[str, Any]:
    pair = {"bf16": value == "bf16", "fp16": value == "fp16"}
    if names is not None and value != "fp32" and value not in names:
        raise _UnsupportedError(f"precision {value} is not known to the installed transformers")
    return {name: on for name, on in pair.items() if names is None or name in names}


def _warmup_to(value: float, names: Collection[str] | None) -> dict[str, Any]:
    share = 0 < value < 1
    # Since 5.0, where enable_jit_checkpoint came, warmup_steps takes a share and warmup_ratio is deprecated.
    if not _has_argument(names, "warmup_ratio", newest=False) or _has_argument(names, JIT, newest=True):
        return {"warmup_steps": value if share else int(value)}
    # Where both exist, steps above 0 win over the ratio.
    return {"warmup_ratio": value if share else 0.0, "warmup_steps": 0 if share else int(value)}


def _checkpointing_to(value: bool, names: Collection[str] | None) -> dict[str, Any]:
    new = _has_argument(names, "activation_checkpointing", newest=True)
    return {"activation_checkpointing" if new else "gradient_checkpointing": value}


def _sampling_to(value: str, names: Collection[str] | None) -> dict[str, Any]:
    if _has_argument(names, "train_sampling_strategy", newest=True):
        return {"train_sampling_strategy": value}
    if value == "sequential" or not _has_argument(names, "group_by_length", newest=False):
        raise _UnsupportedError(f"train_sampling_strategy {value} is not known to the installed transformers")
    return {"group_by_length": value == "group_by_length"}


def _evaluate_to(value: str, names: Collection[str] | None) -> dict[str, Any]:
    return {"eval_strategy" if _has_argument(names, "eval_strategy", newest=True) else "evaluation_strategy": value}


def _max_steps_to(value: int | None, _names: Collection[str] | None) -> dict[str, Any]:
    return {"max_steps": -1 if value is None else value}


_TO_HF: Mapping[str, Callable[[Any, Collection[str] | None], dict[str, Any]]] = {
    "precision": _precision_to,
    "warmup_steps": _warmup_to,
    "gradient_checkpointing": _checkpointing_to,
    "train_sampling_strategy": _sampling_to,
    "eval_strategy": _evaluate_to,
    "max_steps": _max_steps_to,
}


PRESET_SPELLINGS: Mapping[str, str] = {
    "bf16": "precision: bf16",
    "fp16": "precision: fp16",
    "evaluation_strategy": "eval_strategy",
    "warmup_ratio": "warmup_steps (a share below 1)",
    "activation_checkpointing": "gradient_checkpointing",
    "group_by_length": "train_sampling_strategy: group_by_length",
}
"""Names of TrainingArguments that a preset spells differently."""


@dataclass(frozen=True, slots=True)
class ImportedSettings:
    """Settings read from a tool's arguments. `ignored` names arguments that are not settings, `notes` says why.

    `unknown` are those of the notes about arguments that no setting stands for.
    """

    settings: Mapping[str, Value]
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    left_open: tuple[str, ...] = ()


def from_hf(values: Mapping[str, Any], *, strict: bool = True) -> ImportedSettings:
    """Read flat Hugging Face arguments, typed or as text. Raises `FieldError` whose `field` is the key.

    Old spellings are translated; arguments that are not settings are ignored with a note; a misspelt setting is an
    error if `strict`, else ignored too: a tool with arguments of its own may have one of that name.
    """
    reader = _HfImporter(values, strict=strict)
    for key in values:
        reader.take(key)
    return ImportedSettings(reader.settings, tuple(reader.ignored), tuple(reader.notes), tuple(reader.unknown))


RENAMED: Mapping[str, str] = {
    **dict.fromkeys(("max_seq_length", "model_max_length", "max_seq_len", "block_size"), "max_length"),
    "use_bnb_nested_quant": "bnb_4bit_use_double_quant",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
}
"""Other name of a setting, with the same values, in older releases and in scripts of the field."""


RENAMED_SINCE: Mapping[str, str] = {
    "evaluation_strategy": "removed by transformers 4.51",
    "warmup_ratio": "removed by transformers 5.15",
    "group_by_length": "renamed in transformers 5.2",
    "per_gpu_train_batch_size": "removed from transformers 5",
    "per_gpu_eval_batch_size": "removed from transformers 5",
    "max_seq_length": "TRL renamed it in 0.16 and removed it in 0.20",
}
"""Old name of an argument to the release that ended it."""


class _HfImporter:
    """Collects settings and notes from arguments, key by key."""

    def __init__(self, values: Mapping[str, Any], *, strict: bool) -> None:
        self.values = values
        self.strict = strict
        self.settings: dict[str, Value] = {}
        self.ignored: list[str] = []
        self.notes: list[str] = []
        self.unknown: list[str] = []

    def take(self, key: str) -> None:
        """Read one argument. A value that no setting can have raises `FieldError` if `strict`, else it is left out."""
        try:
            self._take(key)
        except FieldError as error:
            if self.strict:
                raise
            self.leave(key, str(error))

    def _take(self, key: str) -> None:
        special = _FROM_HF.get(key)
        if special is not None:
            special(self, key)
        elif key in FIELDS and not self.is_section(key):
            self.put(key, key, self.values[key])
        elif key in IGNORED_ARGUMENTS:
            self.leave(key, IGNORED_ARGUMENTS[key])
            self.unknown.append(self.notes[-1])
        else:
            # 0.85 is one wrong letter in a name of seven; below it, options that scripts chose themselves look like
            # errors.
            near = closest_match(key, [*FIELDS, *_FROM_HF], cutoff=0.85)
            if near is not None and self.strict and near not in key:  # `eval_…` of a setting is another argument
                raise FieldError(key, f"unknown setting '{shorten_text(key)}'; did you mean '{near}'?")
            hint = f"; did you mean '{near}'?" if near else ""
            self.leave(key, f"not a setting; an argument of the training script{hint}")
            self.unknown.append(self.notes[-1])

    def is_section(self, key: str) -> bool:
        """Whether the key of a setting with fixed words is one of a section: `quantization: {enabled: true}`."""
        return bool(FIELDS[key].choices) and isinstance(self.values[key], Mapping)

    def put(self, name: str, key: str, value: Any) -> None:
        """Set `name` from `value` of the argument `key`; None means that the argument was not given."""
        if value is None and not FIELDS[name].optional:
            return
        if FIELDS[name].kind == "int" and isinstance(value, float) and value.is_integer():
            value = int(value)
        if FIELDS[name].kind == "bool" and str(value).strip() in ("0", "1"):
            value = self.flag(key)
        try:
            self.settings[name] = parse_value(name, value) if isinstance(value, str) else check_value(name, value)
        except FieldError as error:
            raise FieldError(key, str(error) if name == key else f"{key}: {error}") from None
        if key not in (name, "activation_checkpointing"):
            since = RENAMED_SINCE.get(key)
            read = f"{key} is read as {name} {format_value(name, self.settings[name])}"
            self.notes.append(read if since is None else f"{read}: {since}")

    def leave(self, key: str, why: str) -> None:
        self.ignored.append(key)
        self.notes.append(f"{shorten_text(key)} ignored: {why}")

    def flag(self, key: str) -> bool:
        """The value of a boolean argument, False if it is missing."""
        value = self.values.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        word = str(value).strip().lower()
        if word in ("true", "on", "yes", "t", "y", "1"):  # the words of `HfArgumentParser`, and YAML's
            return True
        if word in ("false", "off", "no", "f", "n", "0"):
            return False
        raise FieldError(key, f"{key} must be on or off, not '{shorten_text(str(value))}'")

    def number(self, key: str) -> float | None:
        """The value of a numeric argument, None if it is missing. Raises `FieldError`."""
        value = self.values.get(key)
        if value is None:
            return None
        try:
            return float(value)
        except (TypeError, ValueError):
            raise FieldError(key, f"{key} must be a number, not '{shorten_text(str(value))}'") from None


def _precision_from(reader: _HfImporter, key: str) -> None:
    bf16, fp16 = reader.flag("bf16"), reader.flag("fp16")
    if bf16 and fp16:
        raise FieldError(key, "bf16 and fp16 cannot both be on")
    reader.settings["precision"] = "bf16" if bf16 else "fp16" if fp16 else "fp32"


def _warmup_ratio_from(reader: _HfImporter, key: str) -> None:
    ratio, steps = reader.number(key), reader.number("warmup_steps")
    if not ratio and steps is not None:
        return
    if steps:
        reader.leave(key, "warmup_steps wins over it")
    elif ratio is not None and ratio >= 1:
        reader.leave(key, "a warmup over the whole training is not supported")
    else:
        reader.put("warmup_steps", key, ratio)


def _warmup_steps_from(reader: _HfImporter, key: str) -> None:
    if not reader.number(key) and reader.number("warmup_ratio"):
        return
    reader.put("warmup_steps", key, reader.values[key])


def _checkpointing_from(reader: _HfImporter, key: str) -> None:
    new = reader.values.get("activation_checkpointing")
    if key == "gradient_checkpointing" and new is not None:
        reader.leave(key, "activation_checkpointing is given as well")
    else:
        reader.put("gradient_checkpointing", key, reader.values[key])


def _renamed(name: str) -> Callable[[_HfImporter, str], None]:
    def take(reader: _HfImporter, key: str) -> None:
        if name in reader.values and name != key:
            reader.leave(key, f"{name} is given as well")
        else:
            reader.put(name, key, reader.values[key])

    return take


def _cadence_from(name: str) -> Callable[[_HfImporter, str], None]:
    def take(reader: _HfImporter, key: str) -> None:
        value = reader.values[key]
        if value == "best":
            reader.leave(key, "saving at the best evaluation is not supported")
        else:
            reader.put(name, key, "no" if value is False else value)

    return take


def _steps_from(reader: _HfImporter, key: str) -> None:
    value = reader.number(key)
    if value is not None and 0 < value < 1:
        reader.leave(key, "a share of all steps; settings use steps")
    elif value == 0 and FIELDS[key].optional:
        reader.put(key, key, None)
    else:
        reader.put(key, key, reader.values[key])


def _unlimited_from(reader: _HfImporter, key: str) -> None:
    """Transformers uses 0 and -1 where a setting is empty."""
    value = reader.number(key)
    reader.put(key, key, None if value is not None and value <= 0 else reader.values[key])


def _attention_from(reader: _HfImporter, key: str) -> None:
    value = reader.values[key]
    if value is None or value in FIELDS[key].choices:
        reader.put(key, key, value)
    else:
        reader.leave(key, f"{shorten_text(str(value))} is not supported")


def _group_from(reader: _HfImporter, key: str) -> None:
    if "train_sampling_strategy" in reader.values:
        reader.leave(key, "train_sampling_strategy is given as well")
    else:
        reader.put("train_sampling_strategy", key, "group_by_length" if reader.flag(key) else "random")


def _sampling_from(reader: _HfImporter, key: str) -> None:
    if reader.values[key] == "batch_rebalance":
        reader.leave(key, "batch_rebalance is not supported")
    else:
        reader.put(key, key, reader.values[key])


def _peft_from(reader: _HfImporter, _key: str) -> None:
    method = "none"
    if reader.flag("use_peft") or reader.flag("use_dora"):
        method = "dora" if reader.flag("use_dora") else "lora"
    reader.settings["peft_method"] = method


DTYPE_WORDS: Mapping[str, str] = {
    "float32": "fp32", "fp32": "fp32", "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16",
    "half": "fp16", "auto": "saved",
}  # fmt: skip


def _dtype_word(value: Any) -> str:
    """A dtype as the settings spell it: `torch.bfloat16` is `bf16`; other words unchanged."""
    word = str(value).removeprefix("torch.")
    return DTYPE_WORDS.get(word, word)


def _dtype_from(name: str) -> Callable[[_HfImporter, str], None]:
    def take(reader: _HfImporter, key: str) -> None:
        value = reader.values[key]
        word = value if value in FIELDS[name].choices and key == name else _dtype_word(value)
        if value is None or word in FIELDS[name].choices:
            reader.put(name, key, None if value is None else word)
        else:
            reader.leave(key, f"{shorten_text(str(value))} is not supported")

    return take


def _quantization_from(reader: _HfImporter, _key: str) -> None:
    if reader.flag("load_in_4bit"):
        kind = reader.values.get("bnb_4bit_quant_type") or "nf4"  # TRL's default; that of Transformers is fp4
        reader.put("quantization", "quantization", kind)
    else:
        reader.settings["quantization"] = "int8" if reader.flag("load_in_8bit") else "none"


_FROM_HF: Mapping[str, Callable[[_HfImporter, str], None]] = {
    "bf16": _precision_from,
    "fp16": _precision_from,
    "warmup_ratio": _warmup_ratio_from,
    "warmup_steps": _warmup_steps_from,
    "evaluation_strategy": _cadence_from("eval_strategy"),
    "eval_strategy": _cadence_from("eval_strategy"),
    "save_strategy": _cadence_from("save_strategy"),
    "eval_steps": _steps_from,
    "save_steps": _steps_from,
    "logging_steps": _steps_from,
    "max_steps": _unlimited_from,
    "save_total_limit": _unlimited_from,
    "attn_implementation": _attention_from,
    "activation_checkpointing": _checkpointing_from,
    "gradient_checkpointing": _checkpointing_from,
    "group_by_length": _group_from,
    "train_sampling_strategy": _sampling_from,
    "dtype": _dtype_from("weights_dtype"),
    "torch_dtype": _dtype_from("weights_dtype"),
    "bnb_4bit_compute_dtype": _dtype_from("bnb_4bit_compute_dtype"),
    "load_in_4bit": _quantization_from,
    "load_in_8bit": _quantization_from,
    "bnb_4bit_quant_type": _quantization_from,
    "use_peft": _peft_from,
    "use_dora": _peft_from,
    **{key: _renamed(name) for key, name in RENAMED.items()},
}
