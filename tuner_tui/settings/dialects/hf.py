"""Exports settings as Hugging Face `TrainingArguments` and imports such arguments as settings.

`TrainingArguments` is renamed from release to release, so the names are taken from the interpreter that trains: pass
its fields to `to_hf`. Without them the newest spelling of `transformers.yaml` is written. Arguments of any release can
be imported; nothing is dropped without a note.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from tuner_tui.core.files import read_data_file
from tuner_tui.settings.errors import FieldError
from tuner_tui.settings.model import (
    FIELDS,
    Settings,
    Value,
    check_value,
    did_you_mean,
    format_value,
    parse_value,
    shorten_text,
)

_TABLES: Mapping[str, Any] = read_data_file(Path(__file__).with_name("transformers.yaml"))
SCRIPT_FIELDS = frozenset[str](_TABLES["script_settings"])
OPTIMIZERS: Sequence[str] = _TABLES["optimizers"]
BITSANDBYTES_OPTIMIZERS: Collection[str] = _TABLES["bitsandbytes_optimizers"]
SCHEDULES: Sequence[str] = _TABLES["schedules"]
LIBRARY_NAMES: Mapping[str, Sequence[str]] = {"optim": OPTIMIZERS, "lr_scheduler_type": SCHEDULES}
RENAMED: Mapping[str, str] = _TABLES["renamed"]
PRESET_SPELLINGS: Mapping[str, str] = _TABLES["preset_spellings"]
IGNORED_ARGUMENTS: Mapping[str, str] = {name: row["why"] for row in _TABLES["ignored"] for name in row["arguments"]}
"""Argument to the reason why it is ignored."""
NEWER: Mapping[str, str] = {**RENAMED, **_TABLES["newer"]}
"""Argument to the newer one that wins where both are given."""
JIT = "enable_jit_checkpoint"
SWITCHES = frozenset(
    {"bf16", "fp16", "activation_checkpointing", "group_by_length"}
    | {name for name, spec in FIELDS.items() if spec.kind == "bool"}
)
"""Boolean arguments, in all spellings."""
READ_SPECIALLY = (*_TABLES["read_specially"], *RENAMED)
"""Arguments that say a setting of another name."""


class ExportedSettings(Struct, frozen=True):
    """Settings as a tool spells them; `unsupported` names those it cannot express, `notes` says why.

    The keys of `values` are names, or paths of names in a file; None removes a key.
    """

    values: Mapping[Any, Any]
    unsupported: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def to_hf(
    settings: Settings,
    names: Collection[str] | None = None,
    *,
    only: Collection[str] | None = None,
    extra: Collection[str] = (),
) -> ExportedSettings:
    """The keyword arguments that give `settings` to `TrainingArguments`; one of None keeps its default.

    `names`: the fields of the target's `TrainingArguments`, None for the newest known. `only`: the settings to export,
    None for all. `extra`: further names that the script accepts, such as `max_length`.
    """
    values: dict[str, Any] = {}
    notes: dict[str, str] = {}
    for name in FIELDS:
        if only is not None and name not in only:
            continue
        arguments = _arguments(name, getattr(settings, name), names, extra)
        if isinstance(arguments, str):
            notes[name] = arguments
        else:
            values |= arguments
    return ExportedSettings(values, tuple(notes), tuple(notes.values()))


def _arguments(name: str, value: Any, names: Collection[str] | None, extra: Collection[str]) -> dict[str, Any] | str:
    """The arguments that say one setting, or why there are none."""

    def has(argument: str, newest: bool = True) -> bool:
        return newest if names is None else argument in names

    if name in SCRIPT_FIELDS:
        return {name: value} if name in extra else f"{name} is not an argument of TrainingArguments; the script sets it"
    unknown = "is unknown to the installed transformers"
    match name:
        case "precision":
            if value != "fp32" and not has(value):
                return f"precision {value} {unknown}"
            return {argument: value == argument for argument in ("bf16", "fp16") if has(argument)}
        case "warmup_steps":
            share = 0 < value < 1
            # Since 5.0, where enable_jit_checkpoint came, warmup_steps takes a share and warmup_ratio is deprecated.
            if has(JIT) or not has("warmup_ratio", newest=False):
                return {"warmup_steps": value if share else int(value)}
            # Where both exist, steps above 0 win over the ratio.
            return {"warmup_ratio": value if share else 0.0, "warmup_steps": 0 if share else int(value)}
        case "gradient_checkpointing":
            return {"activation_checkpointing" if has("activation_checkpointing") else name: value}
        case "eval_strategy":
            return {name if has(name) else "evaluation_strategy": value}
        case "max_steps":
            return {name: -1 if value is None else value}
        case "train_sampling_strategy" if not has(name):
            if value == "sequential" or not has("group_by_length"):
                return f"{name} {value} {unknown}"
            return {"group_by_length": value == "group_by_length"}
    return {name: value} if has(name) else f"{name} {unknown}"


def arguments_of_release(*release: int) -> frozenset[str]:
    """The arguments that stand for settings in a release of transformers, such as 4, 46; none that it warns of."""
    names = {spelled for name in FIELDS if name not in SCRIPT_FIELDS for spelled in argument_names(name)} | {JIT}
    spans = {name: (first or [0], end or [99]) for name, (first, end) in _TABLES["releases"].items()}
    return frozenset(names - {name for name, (first, end) in spans.items() if not first <= [*release] < end})


def arguments_of_file(keys: Collection[str]) -> frozenset[str]:
    """The arguments of the release that a file with these keys is for: of two spellings the one that it has."""
    names = set(arguments_of_release(5, 23))
    for setting, spellings in _TABLES["spellings"].items():
        if setting != "precision" and (given := {*spellings} & {*keys}):
            names = (names - {*spellings}) | given
    return frozenset(names - {JIT} if "warmup_ratio" in keys else names)


def argument_names(name: str) -> tuple[str, ...]:
    """Every argument that may say a setting: its names over the releases, and those of scripts."""
    spellings = _TABLES["spellings"].get(name, [name])
    return (*spellings, *(old for old, new in RENAMED.items() if new == name))


def library_word(name: str, value: Any) -> Any:
    """The name that Transformers has for an optimizer or schedule of another library or its class; else `value`."""
    names, words = LIBRARY_NAMES.get(name, ()), _TABLES["library_words"].get(name, {})
    if not isinstance(value, str) or value in names:
        return value
    bare = re.sub(r"[\W_]|(?<=[a-z])(?:lr)?(?:scheduler|schedule)$|^get", "", value.rpartition(".")[2].lower())
    if value.startswith("torchao."):  # its low-bit optimizers have the names of those of bitsandbytes
        bare = f"torchao{bare}"
    return next((listed for listed in names if listed.replace("_", "") == bare), words.get(bare, value))


def is_other_library(name: str, value: object) -> bool:
    """Whether an optimizer or schedule is named as another library does, which takes no name of Transformers."""
    return value is not None and name in LIBRARY_NAMES and value not in LIBRARY_NAMES[name]


def setting_of_argument(argument: str) -> str:
    """The setting that a command-line argument belongs to; the argument itself if it belongs to none."""
    name = RENAMED.get(argument, argument)
    return next((setting for setting, spellings in _TABLES["spellings"].items() if name in spellings), name)


class ImportedSettings(Struct, frozen=True):
    """Settings read from a tool's arguments; `notes` says why others are `ignored`, `unknown` are notes on those that
    are no setting, `foreign` an optimizer and a schedule that Transformers does not have.
    """

    settings: Mapping[str, Value]
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    left_open: tuple[str, ...] = ()
    foreign: Mapping[str, str] = {}


def from_hf(values: Mapping[str, Any], *, strict: bool = True) -> ImportedSettings:
    """Read flat Hugging Face arguments, typed or as text. Raises `FieldError` whose `field` is the key.

    Old spellings are translated; arguments that are not settings are ignored with a note; a bad value is an error if
    `strict`, else ignored too: a tool with arguments of its own may have one of that name.
    """
    reader = _HfImporter(values, strict=strict)
    for key in values:
        try:
            reader.take(key)
        except FieldError as error:
            if strict:
                raise
            reader.leave(key, str(error))
    return ImportedSettings(reader.settings, tuple(reader.ignored), tuple(reader.notes), tuple(reader.unknown))


class _HfImporter(Struct):
    """Collects settings and notes from arguments, key by key."""

    values: Mapping[str, Any]
    strict: bool
    settings: dict[str, Value] = {}
    ignored: list[str] = []
    notes: list[str] = []
    unknown: list[str] = []

    def take(self, key: str) -> None:
        """Read one argument. Raises `FieldError` for a value that the setting cannot have."""
        value = self.values[key]
        match key:
            case "bf16" | "fp16":
                bf16, fp16 = self._flag("bf16"), self._flag("fp16")
                if bf16 and fp16:
                    raise FieldError(key, "bf16 and fp16 cannot both be on")
                self.settings["precision"] = "bf16" if bf16 else "fp16" if fp16 else "fp32"
            case "bnb_4bit_quant_type" if not {"load_in_4bit", "load_in_8bit"} & self.values.keys():
                pass  # whether it is used is not said
            case "load_in_4bit" | "load_in_8bit" | "bnb_4bit_quant_type":
                if self._flag("load_in_4bit"):
                    kind = self.values.get("bnb_4bit_quant_type") or "nf4"  # TRL's default; that of Transformers is fp4
                    self._put("quantization", "quantization", kind)
                else:
                    self.settings["quantization"] = "int8" if self._flag("load_in_8bit") else "none"
            case "use_peft" | "use_dora":
                on, dora = self._flag("use_peft"), self._flag("use_dora")
                self.settings["peft_method"] = "dora" if dora else "lora" if on else "none"
            case "warmup_steps":
                if self._number(key) or not self._number("warmup_ratio"):
                    self._put(key, key, value)
            case "warmup_ratio":
                ratio, steps = self._number(key), self._number("warmup_steps")
                if ratio and steps:
                    self.leave(key, "warmup_steps wins over it")
                elif ratio is not None and ratio >= 1:
                    self.leave(key, "a warmup over the whole training is not supported")
                elif ratio or steps is None:
                    self._put("warmup_steps", key, ratio)
            case _ if self.values.get(newer := NEWER.get(key, "")) is not None:
                self.leave(key, f"{newer} is given as well")
            case _ if isinstance(value, str | bool) and (why := _TABLES["refused"].get(key, {}).get(value)):
                self.leave(key, why)
            case "activation_checkpointing":
                self._put("gradient_checkpointing", key, value)
            case "group_by_length":
                self._put("train_sampling_strategy", key, key if self._flag(key) else "random")
            case "evaluation_strategy" | "eval_strategy" | "save_strategy":
                self._put(key.replace("evaluation", "eval"), key, "no" if value is False else value)
            case "eval_steps" | "save_steps" | "logging_steps":
                number = self._number(key)
                if number is not None and 0 < number < 1:
                    self.leave(key, "a share of all steps; settings use steps")
                else:
                    self._put(key, key, None if number == 0 and FIELDS[key].optional else value)
            case "max_steps" | "save_total_limit":  # Transformers uses 0 and -1 where a setting is empty
                number = self._number(key)
                self._put(key, key, None if number is not None and number <= 0 else value)
            case "num_train_epochs" if self._number(key) == -1:  # Lightning's
                self.leave(key, "-1 sets no limit")
            case "optim" | "lr_scheduler_type":
                word = library_word(key, value)
                if word != value:
                    self.notes.append(f"{key} {shorten_text(str(value))} is read as {word}")
                self._put(key, key, word)
            case "attn_implementation" | "bnb_4bit_compute_dtype" | "dtype" | "torch_dtype":
                name: str = key if key in FIELDS else "weights_dtype"
                word = str(value).removeprefix("torch.")
                if name != key or word not in FIELDS[name].choices:
                    word = _TABLES["dtypes"].get(word, word)
                if value is None or word in FIELDS[name].choices:
                    self._put(name, key, None if value is None else word)
                else:
                    self.leave(key, f"{shorten_text(str(value))} is not supported")
            case _ if key in RENAMED:
                self._put(RENAMED[key], key, value)
            # A setting with fixed words may be the name of a section: `quantization: {enabled: true}`.
            case _ if key in FIELDS and not (FIELDS[key].choices and isinstance(value, Mapping)):
                self._put(key, key, value)
            case _:
                self._leave_unknown(key)

    def leave(self, key: str, why: str) -> None:
        self.ignored.append(key)
        self.notes.append(f"{shorten_text(key)} ignored: {why}")

    def _leave_unknown(self, key: str) -> None:
        why = IGNORED_ARGUMENTS.get(key)
        if why is None:
            # 0.85 is one wrong letter in a name of seven; below it, options that scripts chose themselves look like
            # errors.
            hint = did_you_mean(key, [*FIELDS, *READ_SPECIALLY], cutoff=0.85)
            why = f"not a setting; an argument of the training script{hint}"
        self.leave(key, why)
        if "did you mean" not in why or not self.strict:  # what may be misspelt is said in any case
            self.unknown.append(self.notes[-1])

    def _put(self, name: str, key: str, value: Any) -> None:
        """Set `name` from `value` of the argument `key`; None means that the argument was not given."""
        if value is None and not FIELDS[name].optional:
            return
        if FIELDS[name].kind == "int" and isinstance(value, float | str):
            with suppress(ValueError):  # 100000.0 and `1e5`
                value = int(float(value)) if float(value).is_integer() else value
        if FIELDS[name].kind == "bool" and str(value).strip() in ("0", "1"):
            value = self._flag(key)
        try:
            self.settings[name] = parse_value(name, value) if isinstance(value, str) else check_value(name, value)
        except FieldError as error:
            raise FieldError(key, str(error) if name == key else f"{key}: {error}") from None
        if key not in (name, "activation_checkpointing"):
            since = _TABLES["renamed_since"].get(key)
            note = f"{key} is read as {name} {format_value(name, self.settings[name])}"
            self.notes.append(note if since is None else f"{note}: {since}")

    def _flag(self, key: str) -> bool:
        """The value of a boolean argument, False if it is missing. Raises `FieldError`."""
        value = self.values.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        word = str(value).strip().lower()
        if word in ("true", "on", "yes", "t", "y", "1"):  # the words of `HfArgumentParser`, and YAML's
            return True
        if word in ("false", "off", "no", "f", "n", "0"):
            return False
        raise FieldError(key, f"{key} must be on or off, not '{shorten_text(str(value))}'")

    def _number(self, key: str) -> float | None:
        """The value of a numeric argument, None if it is missing. Raises `FieldError`."""
        value = self.values.get(key)
        if value is None:
            return None
        try:
            return float(value)
        except (TypeError, ValueError):
            raise FieldError(key, f"{key} must be a number, not '{shorten_text(str(value))}'") from None
