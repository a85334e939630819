"""The settings of a training: the model, what is known of each field, and values with their origin.

Settings are declared once; form, `--set`, YAML, help and validation are derived from the model and from `fields.yaml`,
which says how each is shown. Names are those of Hugging Face `TrainingArguments` where it has one; `precision` stands
for its `bf16` and `fp16` pair; `max_length`, `attn_implementation`, `weights_dtype`, the LoRA fields and those of
quantization (`bnb_4bit_…` as in `BitsAndBytesConfig`) for what a script passes elsewhere.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import FieldInfo, asdict, fields, replace

from tuner_tui.core.files import read_data_file
from tuner_tui.core.json_struct import Identifier
from tuner_tui.core.text import end_at_word, escape_control
from tuner_tui.settings.errors import FieldError

Precision = Literal["fp32", "fp16", "bf16"]
DTYPE_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
"""Precision by torch's name of a dtype; any other is called by its own name."""
IntervalStrategy = Literal["no", "steps", "epoch"]
Attention = Literal["auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"]
WeightsDtype = Literal["auto", "saved", "fp32", "bf16"]
Quantization = Literal["none", "int8", "nf4", "fp4"]
Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]+\Z", description="a word")]
Batch = Annotated[int, Meta(ge=1, le=65536)]
Steps = Annotated[int, Meta(ge=1, le=1_000_000_000)]


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of one training, immutable. Bounds of single fields are here, rules across fields in `rules`.

    A constructor checks no values; `changed` and `msgspec.convert` do.
    """

    per_device_train_batch_size: Batch = 8
    per_device_eval_batch_size: Batch = 8
    gradient_accumulation_steps: Batch = 1
    precision: Precision = "fp32"
    tf32: bool | None = None
    optim: Word = "adamw_torch"
    learning_rate: Annotated[float, Meta(gt=0, le=10)] = 5e-5
    lr_scheduler_type: Word = "linear"
    warmup_steps: Annotated[float, Meta(ge=0, le=10_000_000)] = 0.0
    weight_decay: Annotated[float, Meta(ge=0, le=1)] = 0.0
    max_grad_norm: Annotated[float, Meta(ge=0, le=1_000_000)] = 1.0
    gradient_checkpointing: bool = False
    attn_implementation: Attention = "auto"
    torch_compile: bool = False
    max_length: Annotated[int, Meta(ge=8, le=1_048_576)] = 128
    train_sampling_strategy: Literal["random", "sequential", "group_by_length"] = "random"
    peft_method: Literal["none", "lora", "dora"] = "none"
    lora_r: Annotated[int, Meta(ge=1, le=4096)] = 16
    lora_alpha: Batch = 32
    lora_dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    weights_dtype: WeightsDtype = "auto"
    quantization: Quantization = "none"
    bnb_4bit_compute_dtype: Literal["auto", "fp32", "fp16", "bf16"] = "auto"
    bnb_4bit_use_double_quant: bool = False
    dataloader_num_workers: Annotated[int, Meta(ge=0, le=1024)] = 0
    dataloader_prefetch_factor: Annotated[int, Meta(ge=1, le=1024)] | None = None
    dataloader_pin_memory: bool = True
    dataloader_persistent_workers: bool = False
    num_train_epochs: Annotated[float, Meta(gt=0, le=100_000)] = 3.0
    max_steps: Steps | None = None
    eval_strategy: IntervalStrategy = "epoch"
    eval_steps: Steps | None = None
    save_strategy: IntervalStrategy = "epoch"
    save_steps: Steps = 500
    save_total_limit: Annotated[int, Meta(ge=1, le=10_000)] | None = 2
    logging_steps: Annotated[int, Meta(ge=1, le=1_000_000)] = 10
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1)] = 42

    def effective_batch(self, processes: int = 1) -> int:
        """Samples per optimizer step: micro batch × accumulation × processes."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps * processes

    def changed(self, **values: Any) -> Settings:
        """A validated copy with `values` replaced. Raises `msgspec.ValidationError`."""
        return convert({**asdict(self), **values}, Settings)


Value = str | int | float | bool | None
Kind = Literal["int", "float", "bool", "choice", "text", "list", "mapping"]
KINDS: Mapping[Any, Kind] = {int: "int", float: "float", bool: "bool", str: "text", tuple: "list", Literal: "choice"}
DISPLAY = Path(__file__).with_name("fields.yaml")
"""How each field is shown."""


class FieldSpec(Struct, frozen=True):
    """How one setting, or another key of a preset, is shown and entered.

    `minimum` and `maximum` are None without a bound; with `above_minimum` and `below_maximum` the bound itself is
    excluded. `choices` lists all values, `suggestions` likely ones of a free text. `type` is what msgspec checks;
    `expected` says it in words where the kind does not.
    """

    name: str
    type: Any
    kind: Kind
    optional: bool
    default: Any
    minimum: float | None = None
    maximum: float | None = None
    above_minimum: bool = False
    below_maximum: bool = False
    choices: tuple[str, ...] = ()
    expected: str = ""
    label: str = ""
    group: str = ""
    unit: str = ""
    help: str = ""
    suggestions: tuple[str, ...] = ()

    @property
    def bounds(self) -> str:
        """The bounds as text, such as `1 to 65536` or `above 0, at most 10`; empty without bounds."""
        low = None if self.minimum is None else _format_bound(self.minimum)
        high = None if self.maximum is None else _format_bound(self.maximum)
        if low and high and not self.above_minimum and not self.below_maximum:
            return f"{low} to {high}"
        least = f"{'above' if self.above_minimum else 'at least'} {low}" if low else ""
        most = f"{'below' if self.below_maximum else 'at most'} {high}" if high else ""
        return ", ".join(filter(None, (least, most)))


def _format_bound(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


def _field_spec(info: FieldInfo, shown: Mapping[str, Any] = MappingProxyType({})) -> FieldSpec:
    """The spec of a field of a model; `shown` is its entry in `fields.yaml`."""
    alternatives = get_args(info.type)
    optional = type(None) in alternatives
    plain = alternatives[0] if optional else info.type
    base, meta = get_args(plain) if get_origin(plain) is Annotated else (plain, Meta())
    kind = KINDS.get(get_origin(base) or base, "mapping")
    return FieldSpec(
        name=info.encode_name,
        type=info.type,
        kind=kind,
        optional=optional,
        default=info.default,
        minimum=meta.gt if meta.ge is None else meta.ge,
        maximum=meta.lt if meta.le is None else meta.le,
        above_minimum=meta.gt is not None,
        below_maximum=meta.lt is not None,
        choices=get_args(base) if kind == "choice" else (),
        expected=meta.description or "",
        suggestions=tuple(shown.get("suggestions", ())),
        **{name: shown[name] for name in ("label", "group", "unit", "help") if name in shown},
    )


FIELDS: Mapping[str, FieldSpec] = {
    info.name: _field_spec(info, read_data_file(DISPLAY)[info.name]) for info in fields(Settings)
}
_LABELS = {spec.label.lower().replace(" ", "_").replace("-", "_"): name for name, spec in FIELDS.items()}
TRUE_WORDS = frozenset({"true", "on", "yes"})
FALSE_WORDS = frozenset({"false", "off", "no"})
EMPTY_WORDS = frozenset({"", "none", "null", "~"})


def parse_value(name: str, text: str) -> Value:
    """`text` as a value of the field `name`; empty, `none`, `null` and `~` mean None if the field is optional.

    Raises `FieldError`, which names the field, what it accepts and, for an unknown name, the closest one.
    """
    spec = spec_of(name)
    word = text.strip()
    if spec.optional and word.lower() in EMPTY_WORDS:
        return None
    value: Value = _check(spec, _read_text(spec, word))
    return value


Section = TypeVar("Section", bound=Struct)


def parse_section(model: type[Section], values: Mapping[str, Any], section: str = "") -> Section:
    """A `model` from the keys of a preset, or of its part `section`, whose scalars may be texts.

    Raises `FieldError`, whose `field` is the key that is unknown, bad or missing.
    """
    prefix = f"{section}." if section else ""
    specs = {info.encode_name: _field_spec(info) for info in fields(model)}
    for key in values:
        if key not in specs:
            kind = f"key of '{section}'" if section else "key"
            raise FieldError(key, f"unknown {kind} '{shorten_text(key)}'{did_you_mean(key, specs)}")
    checked = {}
    for info in fields(model):
        key, value = info.encode_name, values.get(info.encode_name)
        if key in values:
            read = _read_text(specs[key], value) if isinstance(value, str) else value
            checked[info.name] = _check(specs[key], read, prefix)
        elif info.required:
            raise FieldError(key, f"{prefix}{key} is missing")
    return model(**checked)


def _read_text(spec: FieldSpec, word: str) -> Value:
    """What `word` stands for in the field, or the word itself, which the check refuses, where that is nothing."""
    lower = word.strip().lower()
    if spec.kind == "bool" and lower in TRUE_WORDS | FALSE_WORDS:
        return lower in TRUE_WORDS
    if spec.kind == "choice" and lower in spec.choices:
        return lower
    if spec.kind == "int":
        digits = lower.removeprefix("-").removeprefix("+")
        if len(digits) > 1 and digits.startswith("0") and digits.strip("0_"):
            octal = f"{spec.name}: '{shorten_text(word)}' starts with 0, which some tools read as octal; remove it"
            raise FieldError(spec.name, octal)
    if spec.kind in ("int", "float"):
        with suppress(ValueError):
            return int(word) if spec.kind == "int" else float(word)
    return word


def check_value(name: str, value: Any) -> Value:
    """Return `value` if the field `name` accepts it (a float also accepts an int). Raises `FieldError`."""
    checked: Value = _check(spec_of(name), value)
    return checked


def _check(spec: FieldSpec, value: Any, prefix: str = "") -> Any:
    try:
        return convert(value, spec.type)
    except ValidationError:
        hint = did_you_mean(value, spec.choices) if isinstance(value, str) else ""
        given = f"'{shorten_text(value)}'" if isinstance(value, str) else shorten_text(repr(value))
        sentence = f"{prefix}{spec.name} must be {describe_expected(spec)}, not {given}{hint}"
        raise FieldError(spec.name, sentence) from None


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
        raise FieldError(name, f"unknown setting '{shorten_text(name)}'{did_you_mean(name, FIELDS)}") from None


def closest_match(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The one of `names` most similar to `name`, or None if none is."""
    return next(iter(difflib.get_close_matches(name[:100].lower(), list(names), n=1, cutoff=cutoff)), None)


def did_you_mean(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """The end of a sentence that suggests the most similar name; empty without one."""
    near = closest_match(name, names, cutoff)
    return f"; did you mean '{near}'?" if near else ""


def describe_expected(spec: FieldSpec) -> str:
    """What a field accepts, as text: `a whole number, 1 to 65536`."""
    words = (
        spec.expected
        or {
            "int": ", ".join(filter(None, ("a whole number", spec.bounds))),
            "float": ", ".join(filter(None, ("a number", spec.bounds))),
            "bool": "on or off",
            "choice": " or ".join(filter(None, (", ".join(spec.choices[:-1]), *spec.choices[-1:]))),
            "text": "text",
            "list": "a list of words",
            "mapping": "`name: value` lines",
        }[spec.kind]
    )
    return f"{words}, or empty" if spec.optional else words


def shorten_text(text: str, limit: int = 60) -> str:
    """`text` on one line and at most `limit` characters, so that hostile input cannot flood a message."""
    line = escape_control(text[: limit + 1]).replace("\n", "\\n").replace("\t", "\\t")
    return end_at_word(line, limit)


def _float_text(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e16:
        return repr(value).removesuffix(".0")
    # repr gives the shortest digits that read back as the same float; YAML 1.1 needs a point in them: 1.0e-05.
    shortest = Decimal(repr(value)).normalize()
    first, *rest = (str(digit) for digit in shortest.as_tuple().digits)
    sign = "-" if value < 0 else ""
    return f"{sign}{first}.{''.join(rest) or '0'}e{shortest.adjusted():+03d}"


class OriginKind(StrEnum):
    """Kind of source, in order of increasing precedence. `OBSERVED` is a command's own value, observed in its run."""

    DEFAULT = "default"
    OBSERVED = "observed"
    RECOMMENDED = "recommended"
    ASSUMED = "assumed"
    PRESET = "preset"
    PROJECT = "project file"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"
    EDITED = "edited"
    REMEDY = "remedy"
    TUNED = "tuned"

    @classmethod
    def _missing_(cls, value: object) -> OriginKind | None:
        return cls.OBSERVED if value == "seen" else None  # in records of runs before it was renamed


WEAK_ORIGINS = frozenset({OriginKind.DEFAULT, OriginKind.OBSERVED, OriginKind.RECOMMENDED})
"""Origins of values that no user chose."""


class AppliedRemedy(Struct, frozen=True):
    """A remedy that values come from, and what it promised.

    `name` is its row in `remedies.yaml`, `cause` that of its finding in the `run`, `before` the values that it
    replaced, and `env_before` those of variables, None for one that was not set. `speed` bounds the samples per second
    relative to those before, `peak_bytes` the GPU memory; None where nothing was promised.
    """

    name: str
    title: str
    cause: str
    run: Identifier
    before: Mapping[str, Value]
    speed: tuple[float, float] | None = None
    peak_bytes: int | None = None
    env_before: Mapping[str, str | None] = {}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from: the kind of source and its name, such as that of a preset or a variable.

    `remedy` is what is known of the remedy that set it.
    """

    kind: OriginKind
    detail: str = ""
    remedy: AppliedRemedy | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        """The kind of source in a word; `observed` only of what a run showed, else the file that it was read from."""
        read = self.kind == OriginKind.OBSERVED and self.detail and not self.detail.startswith("in ")
        return self.detail if read else self.kind.value


def without_unused(settings: Mapping[str, Value]) -> dict[str, Value]:
    """The settings without those of an adapter or a quantization that they turn off."""
    switches = (("lora_", "peft_method"), ("bnb_", "quantization"))
    off = tuple(part for part, switch in switches if settings.get(switch) == "none")
    return {name: value for name, value in settings.items() if not name.startswith(off)}


class Resolved(Struct, frozen=True):
    """Settings with the origin of each value. A field without an entry has its default.

    `env_remedies` are remedies that the variables of the job come from.
    """

    settings: Settings
    origins: Mapping[str, Origin] = {}
    env_remedies: tuple[AppliedRemedy, ...] = ()

    def origin(self, name: str) -> Origin:
        return self.origins.get(name, Origin(OriginKind.DEFAULT))

    @property
    def given(self) -> dict[str, Value]:
        """The values that a user chose, in field order: neither defaults nor observed nor recommended values."""
        names = [name for name in FIELDS if self.origin(name).kind not in WEAK_ORIGINS]
        return {name: getattr(self.settings, name) for name in names}

    @property
    def chosen(self) -> frozenset[str]:
        """The names of all values that are neither defaults nor observed; recommended ones are included."""
        unchosen = (OriginKind.DEFAULT, OriginKind.OBSERVED)
        return frozenset(name for name, origin in self.origins.items() if origin.kind not in unchosen)

    @property
    def last_remedies(self) -> tuple[AppliedRemedy, ...]:
        """The remedies that values come from, those of the newest run that had the findings."""
        of_values = (origin.remedy for origin in self.origins.values() if origin.remedy is not None)
        remedies = {id(remedy): remedy for remedy in (*of_values, *self.env_remedies)}
        newest = max((remedy.run for remedy in remedies.values()), key=lambda run: (len(run), run), default="")
        return tuple(remedy for remedy in remedies.values() if remedy.run == newest)

    def with_own(self, values: Mapping[str, Value], sources: Mapping[str, str] = MappingProxyType({})) -> Resolved:
        """These settings with a command's own `values` in place of defaults; `sources` name the files they are in."""
        given = without_unused({**values, **self.given})
        weak = {name: given[name] for name in values if name in given and self.origin(name).kind in WEAK_ORIGINS}
        origins = {name: Origin(OriginKind.OBSERVED, sources.get(name, "command")) for name in weak}
        return replace(self, settings=self.settings.changed(**weak), origins={**self.origins, **origins})

    def passed(self, named: Mapping[str, Value]) -> Settings:
        """What a command gets, with the values that it has `named`: without what was only seen in a run of it."""
        chosen = {name: getattr(self.settings, name) for name in self.chosen}
        return Resolved(Settings(**chosen), {name: self.origins[name] for name in chosen}).with_own(named).settings
