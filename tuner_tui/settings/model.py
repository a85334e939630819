"""The settings of a training: the model, what is known of each field, and values with their origin.

Settings are declared once; form, `--set`, YAML, help and validation are derived from the model. Names are those of
Hugging Face `TrainingArguments` where it has one; `precision` stands for its `bf16` and `fp16` pair; `max_length`,
`attn_implementation`, `weights_dtype`, the LoRA fields and those of quantization (`bnb_4bit_…` as in
`BitsAndBytesConfig`) for what a script passes elsewhere.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from tuner_tui.settings.errors import FieldError

Precision = Literal["fp32", "fp16", "bf16"]
IntervalStrategy = Literal["no", "steps", "epoch"]
Attention = Literal["auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"]
WeightsDtype = Literal["auto", "saved", "fp32", "bf16"]
Quantization = Literal["none", "int8", "nf4", "fp4"]


@dataclass(frozen=True, slots=True)
class FieldDisplay:
    """How a field is shown: short label, group in the form, unit, suggestions for free text."""

    label: str
    group: str
    unit: str = ""
    suggestions: tuple[str, ...] = ()


OPTIMIZERS = (
    "adamw_torch", "adamw_torch_fused", "adamw_bnb_8bit", "paged_adamw_8bit", "adafactor", "sgd", "lion_8bit",
)  # fmt: skip
SCHEDULES = ("linear", "cosine", "constant", "constant_with_warmup", "cosine_with_restarts", "inverse_sqrt")

WORD = r"^[A-Za-z0-9_.-]+$"


class Settings(BaseModel):
    """The settings of one training, immutable. Bounds of single fields are here, rules across fields in `rules`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    per_device_train_batch_size: Annotated[int, FieldDisplay("micro batch", "Batch", "samples")] = Field(
        8,
        ge=1,
        le=65536,
        description="Samples per device and step; lower it first when memory runs out.",
    )
    per_device_eval_batch_size: Annotated[int, FieldDisplay("eval batch", "Batch", "samples")] = Field(
        8,
        ge=1,
        le=65536,
        description="Samples per device in evaluation; twice the micro batch usually fits.",
    )
    gradient_accumulation_steps: Annotated[int, FieldDisplay("accumulation", "Batch", "micro batches")] = Field(
        1,
        ge=1,
        le=65536,
        description="Micro batches per optimizer step; keeps the effective batch.",
    )
    precision: Annotated[Precision, FieldDisplay("precision", "Speed")] = Field(
        "fp32",
        description="bf16 needs capability 8.0; fp16 uses a loss scaler; fp32 works everywhere.",
    )
    tf32: Annotated[bool | None, FieldDisplay("TF32", "Speed")] = Field(
        None,
        description="TF32 matrix products, Ampere and newer; empty: PyTorch's default.",
    )
    optim: Annotated[str, FieldDisplay("optimizer", "Optimizer", suggestions=OPTIMIZERS)] = Field(
        "adamw_torch",
        pattern=WORD,
        description="Fused AdamW is fastest; 8-bit AdamW saves 6 bytes per parameter.",
    )
    learning_rate: Annotated[float, FieldDisplay("learning rate", "Optimizer")] = Field(
        5e-5, gt=0, le=10, description="Peak learning rate, reached at the end of the warmup."
    )
    lr_scheduler_type: Annotated[str, FieldDisplay("schedule", "Optimizer", suggestions=SCHEDULES)] = Field(
        "linear", pattern=WORD, description="How the learning rate decays after the warmup."
    )
    warmup_steps: Annotated[float, FieldDisplay("warmup", "Optimizer", "steps or share")] = Field(
        0.0,
        ge=0,
        le=10_000_000,
        description="Steps with rising learning rate; below 1: a share of all steps.",
    )
    weight_decay: Annotated[float, FieldDisplay("weight decay", "Optimizer")] = Field(
        0.0, ge=0, le=1, description="Decoupled weight decay of AdamW."
    )
    max_grad_norm: Annotated[float, FieldDisplay("clip norm", "Optimizer")] = Field(
        1.0, ge=0, le=1_000_000, description="Gradients are scaled down to this norm; 0 turns clipping off."
    )
    gradient_checkpointing: Annotated[bool, FieldDisplay("checkpointing", "Memory")] = Field(
        False,
        description="Recompute activations in the backward pass: less memory, steps 20 % slower.",
    )
    attn_implementation: Annotated[Attention, FieldDisplay("attention", "Speed")] = Field(
        "auto", description="auto: Transformers chooses (SDPA if the model supports it)."
    )
    torch_compile: Annotated[bool, FieldDisplay("compile", "Speed")] = Field(
        False, description="Compile the model: a slow first epoch, then faster steps."
    )
    max_length: Annotated[int, FieldDisplay("max length", "Memory", "tokens")] = Field(
        128,
        ge=8,
        le=1_048_576,
        description="Tokens per sample, longer ones are truncated; memory grows with it.",
    )
    train_sampling_strategy: Annotated[
        Literal["random", "sequential", "group_by_length"], FieldDisplay("sampling", "Speed")
    ] = Field("random", description="group_by_length batches samples of similar length: less padding.")
    peft_method: Annotated[Literal["none", "lora", "dora"], FieldDisplay("adapter", "Memory")] = Field(
        "none", description="Train small adapter matrices instead of all weights."
    )
    lora_r: Annotated[int, FieldDisplay("LoRA rank", "Memory")] = Field(
        16, ge=1, le=4096, description="Rank of the adapters."
    )
    lora_alpha: Annotated[int, FieldDisplay("LoRA alpha", "Memory")] = Field(
        32, ge=1, le=65536, description="Adapter scale: alpha divided by rank."
    )
    lora_dropout: Annotated[float, FieldDisplay("LoRA dropout", "Memory")] = Field(
        0.0, ge=0, lt=1, description="Dropout before the adapters."
    )
    weights_dtype: Annotated[WeightsDtype, FieldDisplay("weights", "Memory")] = Field(
        "auto",
        description="auto: fp32, frozen weights as saved; bf16: pure bf16, which loses small updates.",
    )
    quantization: Annotated[Quantization, FieldDisplay("quantization", "Memory")] = Field(
        "none",
        description="Store frozen weights in 8 or 4 bits (bitsandbytes); nf4 with LoRA is QLoRA.",
    )
    bnb_4bit_compute_dtype: Annotated[
        Literal["auto", "fp32", "fp16", "bf16"], FieldDisplay("4-bit compute", "Memory")
    ] = Field("auto", description="Data type 4-bit weights are computed in; auto: as precision.")
    bnb_4bit_use_double_quant: Annotated[bool, FieldDisplay("double quant", "Memory")] = Field(
        False, description="Also quantize the scales of 4-bit weights: saves 0.4 bits per weight."
    )
    dataloader_num_workers: Annotated[int, FieldDisplay("workers", "Data loading", "processes")] = Field(
        0,
        ge=0,
        le=1024,
        description="Processes that prepare batches; 0: the training process does.",
    )
    dataloader_prefetch_factor: Annotated[
        int | None, FieldDisplay("prefetch", "Data loading", "batches per worker")
    ] = Field(None, ge=1, le=1024, description="Batches each worker keeps ready; needs at least one worker.")
    dataloader_pin_memory: Annotated[bool, FieldDisplay("pin memory", "Data loading")] = Field(
        True, description="Page-locked host memory: faster copies to the GPU."
    )
    dataloader_persistent_workers: Annotated[bool, FieldDisplay("persistent", "Data loading")] = Field(
        False, description="Keep workers alive between epochs; needs at least one worker."
    )
    num_train_epochs: Annotated[float, FieldDisplay("epochs", "Length", "epochs")] = Field(
        3.0, gt=0, le=100_000, description="Passes over the data; ignored if max steps is set."
    )
    max_steps: Annotated[int | None, FieldDisplay("max steps", "Length", "steps")] = Field(
        None,
        ge=1,
        le=1_000_000_000,
        description="Stop after this many optimizer steps; empty: use epochs.",
    )
    eval_strategy: Annotated[IntervalStrategy, FieldDisplay("evaluate", "Length")] = Field(
        "epoch", description="When to evaluate."
    )
    eval_steps: Annotated[int | None, FieldDisplay("eval every", "Length", "steps")] = Field(
        None, ge=1, le=1_000_000_000, description="Steps between evaluations; needs evaluate = steps."
    )
    save_strategy: Annotated[IntervalStrategy, FieldDisplay("save", "Length")] = Field(
        "epoch", description="When to save a checkpoint."
    )
    save_steps: Annotated[int, FieldDisplay("save every", "Length", "steps")] = Field(
        500, ge=1, le=1_000_000_000, description="Steps between checkpoints; needs save = steps."
    )
    save_total_limit: Annotated[int | None, FieldDisplay("keep", "Length", "checkpoints")] = Field(
        2, ge=1, le=10_000, description="Checkpoints kept on disk; empty: all."
    )
    logging_steps: Annotated[int, FieldDisplay("log every", "Length", "steps")] = Field(
        10, ge=1, le=1_000_000, description="Steps between log lines of loss and learning rate."
    )
    seed: Annotated[int, FieldDisplay("seed", "Length")] = Field(
        42, ge=0, le=2**32 - 1, description="Seed of all random numbers."
    )

    def effective_batch(self, processes: int = 1) -> int:
        """Samples per optimizer step: micro batch × accumulation × processes."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps * processes

    def changed(self, **values: Any) -> Settings:
        """A validated copy with `values` replaced. Raises `pydantic.ValidationError`."""
        return Settings.model_validate({**self.model_dump(), **values})


Value = str | int | float | bool | None
Kind = Literal["int", "float", "bool", "choice", "text"]


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """How one setting is shown and entered.

    `minimum` and `maximum` are None without a bound; with `above_minimum` and `below_maximum` the bound itself is
    excluded. `choices` lists all values, `suggestions` likely ones of a free text.
    """

    name: str
    label: str
    group: str
    unit: str
    kind: Kind
    optional: bool
    default: Value
    help: str
    minimum: float | None = None
    maximum: float | None = None
    above_minimum: bool = False
    below_maximum: bool = False
    choices: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()

    @property
    def bounds(self) -> str:
        """The bounds as text, such as `1 to 65536` or `above 0, at most 10`; empty without bounds."""
        if self.minimum is None or self.maximum is None:
            return ""
        low, high = _format_bound(self.minimum), _format_bound(self.maximum)
        if not self.above_minimum and not self.below_maximum:
            return f"{low} to {high}"
        least = "above" if self.above_minimum else "at least"
        most = "below" if self.below_maximum else "at most"
        return f"{least} {low}, {most} {high}"


def _format_bound(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


def _field_spec(name: str, info: FieldInfo) -> FieldSpec:
    shown = next(item for item in info.metadata if isinstance(item, FieldDisplay))
    plain, optional = _strip_optional(info.annotation)
    kind, choices = _kind(plain)
    return FieldSpec(
        name=name,
        label=shown.label,
        group=shown.group,
        unit=shown.unit,
        kind=kind,
        optional=optional,
        default=info.default,
        help=info.description or "",
        choices=choices,
        suggestions=shown.suggestions,
        **_bounds(info.metadata),
    )


def _strip_optional(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    inner = [arg for arg in get_args(annotation) if arg is not type(None)]
    return inner[0], True


def _kind(annotation: Any) -> tuple[Kind, tuple[str, ...]]:
    if get_origin(annotation) is Literal:
        return "choice", get_args(annotation)
    kinds: Mapping[Any, Kind] = {int: "int", float: "float", bool: "bool", str: "text"}
    return kinds[annotation], ()


def _bounds(metadata: Iterable[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in metadata:
        match item:
            case Ge(ge=bound):
                found |= {"minimum": bound}
            case Gt(gt=bound):
                found |= {"minimum": bound, "above_minimum": True}
            case Le(le=bound):
                found |= {"maximum": bound}
            case Lt(lt=bound):
                found |= {"maximum": bound, "below_maximum": True}
    return found


FIELDS: Mapping[str, FieldSpec] = {name: _field_spec(name, info) for name, info in Settings.model_fields.items()}


_LABELS = {spec.label.lower().replace(" ", "_").replace("-", "_"): name for name, spec in FIELDS.items()}


TRUE_WORDS = frozenset({"true", "on", "yes"})
FALSE_WORDS = frozenset({"false", "off", "no"})
EMPTY_WORDS = frozenset({"", "none", "null", "~"})


def parse_value(name: str, text: str) -> Value:
    """Parse `text` as a value of the field `name`.

    Empty, `none`, `null` and `~` mean None if the field is optional. Raises `FieldError`, which names the field, what
    it accepts and, for an unknown name, the closest one.
    """
    spec = spec_of(name)
    word = text.strip()
    if spec.optional and word.lower() in EMPTY_WORDS:
        return None
    value = _PARSERS[spec.kind](spec, word)
    return check_value(name, value)


def check_value(name: str, value: Any) -> Value:
    """Return `value` if the field `name` accepts it (a float also accepts an int). Raises `FieldError`."""
    spec = spec_of(name)
    try:
        checked: Value = _adapter(name).validate_python(value)
    except ValidationError:
        raise FieldError(name, f"{name} must be {describe_expected(spec)}, not {_quoted(value)}") from None
    return checked


def format_value(name: str, value: Value) -> str:
    """A value as compact text; `parse_value(name, format_value(name, v)) == v` for every valid value."""
    spec_of(name)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return _float_text(value)
    return str(value)


def field_name(text: str) -> str:
    """The field that `text` names by its name or its label: `per-device-train-batch-size`, `micro batch`.

    `text` in the form of a name where it is neither.
    """
    word = "_".join(text.replace("-", " ").replace("_", " ").split())
    return word if word in FIELDS else _LABELS.get(word.lower(), word)


def spec_of(name: str) -> FieldSpec:
    """The spec of the field `name`. Raises `FieldError`, which suggests the closest name."""
    try:
        return FIELDS[name]
    except KeyError:
        raise FieldError(name, unknown_field_message(name)) from None


def unknown_field_message(name: str) -> str:
    near = closest_match(name, FIELDS)
    return f"unknown setting '{shorten_text(name)}'" + (f"; did you mean '{near}'?" if near else "")


def closest_match(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The one of `names` most similar to `name`, or None if none is."""
    found = difflib.get_close_matches(name[:100].lower(), list(names), n=1, cutoff=cutoff)
    return found[0] if found else None


def describe_expected(spec: FieldSpec) -> str:
    """What a field accepts, as text: `a whole number, 1 to 65536`."""
    words = {
        "int": f"a whole number, {spec.bounds}",
        "float": f"a number, {spec.bounds}",
        "bool": "on or off",
        "choice": join_choices(spec.choices),
        "text": "a word",
    }[spec.kind]
    return f"{words}, or empty" if spec.optional else words


def join_choices(words: tuple[str, ...]) -> str:
    """`a, b or c`."""
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else "".join(words)


def shorten_text(text: str, limit: int = 60) -> str:
    """`text` on one line and at most `limit` characters, so that hostile input cannot flood a message."""
    line = "".join(c if c.isprintable() else "�" for c in text[: limit + 1])
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _quoted(value: Any) -> str:
    return f"'{shorten_text(str(value))}'" if isinstance(value, str) else shorten_text(repr(value))


def _float_text(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e16:
        return repr(value).removesuffix(".0")
    # repr gives the shortest digits that read back as the same float; YAML 1.1 needs a point in them: 1.0e-05.
    shortest = Decimal(repr(value)).normalize()
    first, *rest = (str(digit) for digit in shortest.as_tuple().digits)
    sign = "-" if value < 0 else ""
    return f"{sign}{first}.{''.join(rest) or '0'}e{shortest.adjusted():+03d}"


def _unexpected(spec: FieldSpec, word: str, hint: str = "") -> FieldError:
    return FieldError(spec.name, f"{spec.name} must be {describe_expected(spec)}, not '{shorten_text(word)}'{hint}")


def _parse_int(spec: FieldSpec, word: str) -> int:
    digits = word.removeprefix("-").removeprefix("+")
    if len(digits) > 1 and digits.startswith("0") and digits.strip("0_"):
        octal = f"{spec.name}: '{shorten_text(word)}' starts with 0, which some tools read as octal; remove it"
        raise FieldError(spec.name, octal)
    try:
        return int(word)
    except ValueError:
        raise _unexpected(spec, word) from None


def _parse_float(spec: FieldSpec, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise _unexpected(spec, word) from None


def _parse_bool(spec: FieldSpec, word: str) -> bool:
    lower = word.lower()
    if lower in TRUE_WORDS | FALSE_WORDS:
        return lower in TRUE_WORDS
    raise _unexpected(spec, word)


def _parse_choice(spec: FieldSpec, word: str) -> str:
    if word.lower() in spec.choices:
        return word.lower()
    near = closest_match(word, spec.choices)
    hint = f"; did you mean '{near}'?" if near else ""
    raise _unexpected(spec, word, hint)


def _parse_text(_spec: FieldSpec, word: str) -> str:
    return word


_PARSERS: Mapping[Kind, Callable[[FieldSpec, str], Value]] = {
    "int": _parse_int,
    "float": _parse_float,
    "bool": _parse_bool,
    "choice": _parse_choice,
    "text": _parse_text,
}


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    """A validator of one field, as strict as the model and with the field's bounds."""
    info = Settings.model_fields[name]
    annotated: Any = Annotated[(info.annotation, *info.metadata)]
    return TypeAdapter(annotated, config={"strict": True})


class OriginKind(StrEnum):
    """Kind of source, in order of increasing precedence. `SEEN` is a command's own value, observed in its run."""

    DEFAULT = "default"
    SEEN = "seen"
    RECOMMENDED = "recommended"
    PRESET = "preset"
    PROJECT = "project file"
    ENVIRONMENT = "environment"
    FLAG = "flag"
    EDITED = "edited"
    REMEDY = "remedy"
    TUNED = "tuned"


WEAK_ORIGINS = frozenset({OriginKind.DEFAULT, OriginKind.SEEN, OriginKind.RECOMMENDED})
"""Origins of values that no user chose."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from: the kind of source and its name, such as that of a preset or a variable."""

    kind: OriginKind
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings with the origin of each value. A field without an entry has its default."""

    settings: Settings
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def origin(self, name: str) -> Origin:
        return self.origins.get(name, Origin(OriginKind.DEFAULT))

    @property
    def given(self) -> dict[str, Value]:
        """The values that a user chose, in field order: neither defaults nor seen nor recommended values."""
        names = [name for name in Settings.model_fields if self.origin(name).kind not in WEAK_ORIGINS]
        return {name: getattr(self.settings, name) for name in names}

    @property
    def chosen(self) -> frozenset[str]:
        """The names of all values that are neither defaults nor seen; recommended ones are included."""
        own = (OriginKind.DEFAULT, OriginKind.SEEN)
        return frozenset(name for name, origin in self.origins.items() if origin.kind not in own)

    def with_own(self, values: Mapping[str, Value]) -> Resolved:
        """These settings with a command's own `values` in place of defaults."""
        own = {name: value for name, value in values.items() if self.origin(name).kind in WEAK_ORIGINS}
        origins = dict.fromkeys(own, Origin(OriginKind.SEEN, "the command"))
        return Resolved(self.settings.changed(**own), {**self.origins, **origins})
