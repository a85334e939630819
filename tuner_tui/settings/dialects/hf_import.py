"""Flat Hugging Face arguments of any release read as settings; nothing is dropped without a note."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner_tui.settings.dialects.hf_names import NOT_SETTINGS
from tuner_tui.settings.errors import FieldError
from tuner_tui.settings.fields import check_value, format_value, nearest, parse_value, shorten
from tuner_tui.settings.fieldspec import FIELDS, Value

SPELLINGS: Mapping[str, str] = {
    "bf16": "precision: bf16",
    "fp16": "precision: fp16",
    "evaluation_strategy": "eval_strategy",
    "warmup_ratio": "warmup_steps (a share below 1)",
    "activation_checkpointing": "gradient_checkpointing",
    "group_by_length": "train_sampling_strategy: group_by_length",
}
"""Names of TrainingArguments that a preset spells differently."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A tool's arguments as settings. `left_out` names those that are no setting, `notes` says why."""

    settings: Mapping[str, Value]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def from_hf(values: Mapping[str, Any]) -> Imported:
    """Read flat Hugging Face arguments, typed or as text. Raises `FieldError` whose `field` is the key.

    Old spellings are translated; arguments that are no setting are left out with a note; a misspelt setting
    is an error.
    """
    reader = _Importer(values)
    for key in values:
        reader.take(key)
    return Imported(reader.settings, tuple(reader.left_out), tuple(reader.notes))


class _Importer:
    """Goes through the arguments key by key and keeps what it found."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.settings: dict[str, Value] = {}
        self.left_out: list[str] = []
        self.notes: list[str] = []

    def take(self, key: str) -> None:
        special = _FROM_HF.get(key)
        if special is not None:
            special(self, key)
        elif key in FIELDS:
            self.put(key, key, self.values[key])
        elif key in NOT_SETTINGS:
            self.leave(key, NOT_SETTINGS[key])
        else:
            self.refuse_misspelt(key)
            self.leave(key, "no setting; the training script's own argument")

    def put(self, name: str, key: str, value: Any) -> None:
        """Take `value` of the argument `key` as the setting `name`; None: the argument was not given."""
        if value is None and not FIELDS[name].optional:
            return
        if FIELDS[name].kind == "int" and isinstance(value, float) and value.is_integer():
            value = int(value)
        try:
            self.settings[name] = parse_value(name, value) if isinstance(value, str) else check_value(name, value)
        except FieldError as error:
            raise FieldError(key, str(error) if name == key else f"{key}: {error}") from None
        if key not in (name, "activation_checkpointing"):
            self.notes.append(f"{key} is read as {name} {format_value(name, self.settings[name])}")

    def leave(self, key: str, why: str) -> None:
        self.left_out.append(key)
        self.notes.append(f"{shorten(key)} left out: {why}")

    def refuse_misspelt(self, key: str) -> None:
        near = nearest(key, [*FIELDS, *_FROM_HF], cutoff=0.85)
        if near is not None:
            raise FieldError(key, f"unknown setting '{shorten(key)}'; did you mean '{near}'?")

    def flag(self, key: str) -> bool:
        """The value of a boolean argument; an argument that is not there is off."""
        value = self.values.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        word = str(value).strip().lower()
        if word in ("true", "on", "yes"):
            return True
        if word in ("false", "off", "no"):
            return False
        raise FieldError(key, f"{key} must be on or off, not '{shorten(str(value))}'")

    def number(self, key: str) -> float | None:
        """The value of a numeric argument, None where it is not there; raises `FieldError`."""
        value = self.values.get(key)
        if value is None:
            return None
        try:
            return float(value)
        except (TypeError, ValueError):
            raise FieldError(key, f"{key} must be a number, not '{shorten(str(value))}'") from None


def _precision_from(reader: _Importer, key: str) -> None:
    bf16, fp16 = reader.flag("bf16"), reader.flag("fp16")
    if bf16 and fp16:
        raise FieldError(key, "bf16 and fp16 cannot both be on")
    reader.settings["precision"] = "bf16" if bf16 else "fp16" if fp16 else "fp32"


def _warmup_ratio_from(reader: _Importer, key: str) -> None:
    ratio, steps = reader.number(key), reader.number("warmup_steps")
    if not ratio and steps is not None:
        return
    if steps:
        reader.leave(key, "warmup_steps wins over it")
    elif ratio is not None and ratio >= 1:
        reader.leave(key, "a warmup over the whole training has no place in the settings")
    else:
        reader.put("warmup_steps", key, ratio)


def _warmup_steps_from(reader: _Importer, key: str) -> None:
    if not reader.number(key) and reader.number("warmup_ratio"):
        return
    reader.put("warmup_steps", key, reader.values[key])


def _checkpointing_from(reader: _Importer, key: str) -> None:
    new = reader.values.get("activation_checkpointing")
    if key == "gradient_checkpointing" and new is not None:
        reader.leave(key, "activation_checkpointing is given as well")
    else:
        reader.put("gradient_checkpointing", key, reader.values[key])


def _renamed(name: str) -> Callable[[_Importer, str], None]:
    def take(reader: _Importer, key: str) -> None:
        if name in reader.values and name != key:
            reader.leave(key, f"{name} is given as well")
        else:
            reader.put(name, key, reader.values[key])

    return take


def _cadence_from(name: str) -> Callable[[_Importer, str], None]:
    def take(reader: _Importer, key: str) -> None:
        value = reader.values[key]
        if value == "best":
            reader.leave(key, "saving at the best evaluation has no place in the settings")
        else:
            reader.put(name, key, "no" if value is False else value)

    return take


def _steps_from(reader: _Importer, key: str) -> None:
    value = reader.number(key)
    if value is not None and 0 < value < 1:
        reader.leave(key, "a share of all steps; the settings count in steps")
    elif value == 0 and FIELDS[key].optional:
        reader.put(key, key, None)
    else:
        reader.put(key, key, reader.values[key])


def _unlimited_from(reader: _Importer, key: str) -> None:
    """0 and -1 mean to Transformers what empty means here."""
    value = reader.number(key)
    reader.put(key, key, None if value is not None and value <= 0 else reader.values[key])


def _attention_from(reader: _Importer, key: str) -> None:
    value = reader.values[key]
    if value is None or value in FIELDS[key].choices:
        reader.put(key, key, value)
    else:
        reader.leave(key, f"{shorten(str(value))} has no place in the settings")


def _group_from(reader: _Importer, key: str) -> None:
    if "train_sampling_strategy" in reader.values:
        reader.leave(key, "train_sampling_strategy is given as well")
    else:
        reader.put("train_sampling_strategy", key, "group_by_length" if reader.flag(key) else "random")


def _sampling_from(reader: _Importer, key: str) -> None:
    if reader.values[key] == "batch_rebalance":
        reader.leave(key, "batch_rebalance has no place in the settings")
    else:
        reader.put(key, key, reader.values[key])


def _peft_from(reader: _Importer, _key: str) -> None:
    method = "none"
    if reader.flag("use_peft") or reader.flag("use_dora"):
        method = "dora" if reader.flag("use_dora") else "lora"
    reader.settings["peft_method"] = method


_FROM_HF: Mapping[str, Callable[[_Importer, str], None]] = {
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
    "use_peft": _peft_from,
    "use_dora": _peft_from,
    "per_gpu_train_batch_size": _renamed("per_device_train_batch_size"),
    "per_gpu_eval_batch_size": _renamed("per_device_eval_batch_size"),
}
