"""Settings in the words of Hugging Face `TrainingArguments`.

`TrainingArguments` is renamed from release to release, so the names are taken from the interpreter that
trains: pass its fields to `to_hf`. Without them the newest spelling known here (transformers 5.23) is
written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tuner_tui.settings.dialects.hf_names import SCRIPT_FIELDS
from tuner_tui.settings.fieldspec import FIELDS
from tuner_tui.settings.model import Settings

OWNED: Mapping[str, tuple[str, ...]] = {
    "precision": ("bf16", "fp16"),
    "warmup_steps": ("warmup_steps", "warmup_ratio"),
    "gradient_checkpointing": ("gradient_checkpointing", "activation_checkpointing"),
    "train_sampling_strategy": ("train_sampling_strategy", "group_by_length"),
    "eval_strategy": ("eval_strategy", "evaluation_strategy"),
}
"""Every spelling that a setting has had, where that is not just its own name."""


SWITCHES = frozenset(
    {"bf16", "fp16", "activation_checkpointing", "group_by_length"}
    | {name for name, spec in FIELDS.items() if spec.kind == "bool"}
)
"""Arguments that are on or off, by all their spellings."""


@dataclass(frozen=True, slots=True)
class Carried:
    """Settings in a tool's words; `not_carried` names those it has no place for, `notes` says why."""

    values: Mapping[str, Any]
    not_carried: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def to_hf(
    settings: Settings,
    names: Collection[str] | None = None,
    *,
    only: Collection[str] | None = None,
    extra: Collection[str] = (),
) -> Carried:
    """The keyword arguments that give `settings` to `TrainingArguments`.

    `names`: the fields of the target's TrainingArguments (None: the newest). `only`: the settings to carry
    (None: all). `extra`: names the script takes besides, such as `max_length`. A value of None means that the
    argument is left to its default.
    """
    values: dict[str, Any] = {}
    missing: list[str] = []
    notes: list[str] = []
    for name in FIELDS:
        if only is not None and name not in only:
            continue
        try:
            values.update(_carry(settings, name, names, extra))
        except _NoPlaceError as error:
            missing.append(name)
            notes.append(str(error))
    return Carried(values, tuple(missing), tuple(notes))


def owned_names(name: str) -> tuple[str, ...]:
    """Every argument name by which the setting `name` may stand on a command line."""
    return OWNED.get(name, (name,))


class _NoPlaceError(Exception):
    """The target has no argument for this setting."""


def _carry(settings: Settings, name: str, names: Collection[str] | None, extra: Collection[str]) -> dict[str, Any]:
    value = getattr(settings, name)
    if name in SCRIPT_FIELDS:
        return _plain(name, value, extra, "is not an argument of TrainingArguments; the script sets it")
    special = _TO_HF.get(name)
    if special is not None:
        return special(value, names)
    return _plain(name, value, names, "is not known to the installed transformers")


def _plain(name: str, value: Any, names: Collection[str] | None, why: str) -> dict[str, Any]:
    if names is None or name in names:
        return {name: value}
    raise _NoPlaceError(f"{name} {why}")


def _has(names: Collection[str] | None, name: str, *, newest: bool) -> bool:
    return newest if names is None else name in names


def _precision_to(value: str, names: Collection[str] | None) -> dict[str, Any]:
    pair = {"bf16": value == "bf16", "fp16": value == "fp16"}
    if names is not None and value != "fp32" and value not in names:
        raise _NoPlaceError(f"precision {value} is not known to the installed transformers")
    return {name: on for name, on in pair.items() if names is None or name in names}


def _warmup_to(value: float, names: Collection[str] | None) -> dict[str, Any]:
    share = 0 < value < 1
    if not _has(names, "warmup_ratio", newest=False):
        return {"warmup_steps": value if share else int(value)}
    # Where both exist, steps above 0 win over the ratio.
    return {"warmup_ratio": value if share else 0.0, "warmup_steps": 0 if share else int(value)}


def _checkpointing_to(value: bool, names: Collection[str] | None) -> dict[str, Any]:
    new = _has(names, "activation_checkpointing", newest=True)
    return {"activation_checkpointing" if new else "gradient_checkpointing": value}


def _sampling_to(value: str, names: Collection[str] | None) -> dict[str, Any]:
    if _has(names, "train_sampling_strategy", newest=True):
        return {"train_sampling_strategy": value}
    if value == "sequential" or not _has(names, "group_by_length", newest=False):
        raise _NoPlaceError(f"train_sampling_strategy {value} is not known to the installed transformers")
    return {"group_by_length": value == "group_by_length"}


def _evaluate_to(value: str, names: Collection[str] | None) -> dict[str, Any]:
    return {"eval_strategy" if _has(names, "eval_strategy", newest=True) else "evaluation_strategy": value}


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


def as_args(values: Mapping[str, Any]) -> list[str]:
    """`--key value` for every value; booleans as `HfArgumentParser` reads them; None is left out."""
    return [word for name, value in values.items() if value is not None for word in (f"--{name}", _word(value))]


def _word(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)
