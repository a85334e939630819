"""The settings of a training: the model, what is known of each field, and values with their origin.

Settings are declared once; form, `--set`, YAML, help and validation are derived from the model and from `fields.yaml`,
which says how each is shown. Names are those of
Hugging Face `TrainingArguments` where it has one; `precision` stands for its `bf16` and `fp16` pair; `max_length`,
`attn_implementation`, `weights_dtype`, the LoRA fields and those of quantization (`bnb_4bit_…` as in
`BitsAndBytesConfig`) for what a script passes elsewhere.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from tuner_tui.core.files import read_data_file
from tuner_tui.core.text import escape_control
from tuner_tui.settings.errors import FieldError

Precision = Literal["fp32", "fp16", "bf16"]
IntervalStrategy = Literal["no", "steps", "epoch"]
Attention = Literal["auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"]
WeightsDtype = Literal["auto", "saved", "fp32", "bf16"]
Quantization = Literal["none", "int8", "nf4", "fp4"]


WORD = r"^[A-Za-z0-9_.-]+$"


class Settings(BaseModel):
    """The settings of one training, immutable. Bounds of single fields are here, rules across fields in `rules`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    per_device_train_batch_size: int = Field(8, ge=1, le=65536)
    per_device_eval_batch_size: int = Field(8, ge=1, le=65536)
    gradient_accumulation_steps: int = Field(1, ge=1, le=65536)
    precision: Precision = "fp32"
    tf32: bool | None = None
    optim: str = Field("adamw_torch", pattern=WORD)
    learning_rate: float = Field(5e-5, gt=0, le=10)
    lr_scheduler_type: str = Field("linear", pattern=WORD)
    warmup_steps: float = Field(0.0, ge=0, le=10_000_000)
    weight_decay: float = Field(0.0, ge=0, le=1)
    max_grad_norm: float = Field(1.0, ge=0, le=1_000_000)
    gradient_checkpointing: bool = False
    attn_implementation: Attention = "auto"
    torch_compile: bool = False
    max_length: int = Field(128, ge=8, le=1_048_576)
    train_sampling_strategy: Literal["random", "sequential", "group_by_length"] = "random"
    peft_method: Literal["none", "lora", "dora"] = "none"
    lora_r: int = Field(16, ge=1, le=4096)
    lora_alpha: int = Field(32, ge=1, le=65536)
    lora_dropout: float = Field(0.0, ge=0, lt=1)
    weights_dtype: WeightsDtype = "auto"
    quantization: Quantization = "none"
    bnb_4bit_compute_dtype: Literal["auto", "fp32", "fp16", "bf16"] = "auto"
    bnb_4bit_use_double_quant: bool = False
    dataloader_num_workers: int = Field(0, ge=0, le=1024)
    dataloader_prefetch_factor: int | None = Field(None, ge=1, le=1024)
    dataloader_pin_memory: bool = True
    dataloader_persistent_workers: bool = False
    num_train_epochs: float = Field(3.0, gt=0, le=100_000)
    max_steps: int | None = Field(None, ge=1, le=1_000_000_000)
    eval_strategy: IntervalStrategy = "epoch"
    eval_steps: int | None = Field(None, ge=1, le=1_000_000_000)
    save_strategy: IntervalStrategy = "epoch"
    save_steps: int = Field(500, ge=1, le=1_000_000_000)
    save_total_limit: int | None = Field(2, ge=1, le=10_000)
    logging_steps: int = Field(10, ge=1, le=1_000_000)
    seed: int = Field(42, ge=0, le=2**32 - 1)

    def effective_batch(self, processes: int = 1) -> int:
        """Samples per optimizer step: micro batch × accumulation × processes."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps * processes

    def changed(self, **values: Any) -> Settings:
        """A validated copy with `values` replaced. Raises `pydantic.ValidationError`."""
        return Settings.model_validate({**self.model_dump(), **values})


Value = str | int | float | bool | None
Kind = Literal["int", "float", "bool", "choice", "text"]
KINDS: Mapping[Any, Kind] = {int: "int", float: "float", bool: "bool", str: "text"}
BOUNDS = ("ge", "gt", "le", "lt")
DISPLAY = Path(__file__).with_name("fields.yaml")
"""How each field is shown."""


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
    shown = {"unit": "", "suggestions": (), **read_data_file(DISPLAY)[name]}
    alternatives = get_args(info.annotation)
    optional = type(None) in alternatives
    plain = alternatives[0] if optional else info.annotation
    is_choice = get_origin(plain) is Literal
    bounds = {key: value for item in info.metadata for key in BOUNDS if (value := getattr(item, key, None)) is not None}
    return FieldSpec(
        name=name,
        label=shown["label"],
        group=shown["group"],
        unit=shown["unit"],
        kind="choice" if is_choice else KINDS[plain],
        optional=optional,
        default=info.default,
        help=shown["help"],
        minimum=bounds.get("ge", bounds.get("gt")),
        maximum=bounds.get("le", bounds.get("lt")),
        above_minimum="gt" in bounds,
        below_maximum="lt" in bounds,
        choices=get_args(plain) if is_choice else (),
        suggestions=tuple(shown["suggestions"]),
    )


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
    return check_value(name, _read_text(spec, word))


def _read_text(spec: FieldSpec, word: str) -> Value:
    """What `word` stands for in the field, or the word itself, which the check refuses, where that is nothing."""
    lower = word.lower()
    if spec.kind == "bool" and lower in TRUE_WORDS | FALSE_WORDS:
        return lower in TRUE_WORDS
    if spec.kind == "choice" and lower in spec.choices:
        return lower
    if spec.kind == "int":
        digits = word.removeprefix("-").removeprefix("+")
        if len(digits) > 1 and digits.startswith("0") and digits.strip("0_"):
            octal = f"{spec.name}: '{shorten_text(word)}' starts with 0, which some tools read as octal; remove it"
            raise FieldError(spec.name, octal)
    if spec.kind in ("int", "float"):
        with suppress(ValueError):
            return int(word) if spec.kind == "int" else float(word)
    return word


def check_value(name: str, value: Any) -> Value:
    """Return `value` if the field `name` accepts it (a float also accepts an int). Raises `FieldError`."""
    spec = spec_of(name)
    try:
        checked: Value = _adapter(name).validate_python(value)
    except ValidationError:
        near = closest_match(value, spec.choices) if isinstance(value, str) else None
        hint = f"; did you mean '{near}'?" if near else ""
        raise FieldError(name, f"{name} must be {describe_expected(spec)}, not {_quoted(value)}{hint}") from None
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
        near = closest_match(name, FIELDS)
        hint = f"; did you mean '{near}'?" if near else ""
        raise FieldError(name, f"unknown setting '{shorten_text(name)}'{hint}") from None


def closest_match(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The one of `names` most similar to `name`, or None if none is."""
    return next(iter(difflib.get_close_matches(name[:100].lower(), list(names), n=1, cutoff=cutoff)), None)


def describe_expected(spec: FieldSpec) -> str:
    """What a field accepts, as text: `a whole number, 1 to 65536`."""
    words = {
        "int": f"a whole number, {spec.bounds}",
        "float": f"a number, {spec.bounds}",
        "bool": "on or off",
        "choice": " or ".join(filter(None, (", ".join(spec.choices[:-1]), *spec.choices[-1:]))),
        "text": "a word",
    }[spec.kind]
    return f"{words}, or empty" if spec.optional else words


def shorten_text(text: str, limit: int = 60) -> str:
    """`text` on one line and at most `limit` characters, so that hostile input cannot flood a message."""
    line = escape_control(text[: limit + 1]).replace("\n", "\\n").replace("\t", "\\t")
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


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    """A validator of one field, as strict as the model and with the field's bounds."""
    info = Settings.model_fields[name]
    annotated: Any = Annotated[(info.annotation, info)]
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
        unchosen = (OriginKind.DEFAULT, OriginKind.SEEN)
        return frozenset(name for name, origin in self.origins.items() if origin.kind not in unchosen)

    def with_own(self, values: Mapping[str, Value]) -> Resolved:
        """These settings with a command's own `values` in place of defaults."""
        weak = {name: value for name, value in values.items() if self.origin(name).kind in WEAK_ORIGINS}
        origins = dict.fromkeys(weak, Origin(OriginKind.SEEN, "the command"))
        return Resolved(self.settings.changed(**weak), {**self.origins, **origins})
