"""What a knob looks like: one `FieldSpec` a field, derived from the declaration in `model.Settings`."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from tuner_tui.settings.model import Settings, Shown

Value = str | int | float | bool | None
Kind = Literal["int", "float", "bool", "choice", "text"]


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One knob as it is shown and typed.

    `minimum` and `maximum` are None where there is no bound; `above_minimum` and `below_maximum` say that the
    bound itself is left out. `choices` is closed, `suggestions` are merely likely words for a text.
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
        """The bounds in words, such as `1 to 65536` or `above 0, at most 10`; empty where there are none."""
        if self.minimum is None or self.maximum is None:
            return ""
        low, high = _number(self.minimum), _number(self.maximum)
        if not self.above_minimum and not self.below_maximum:
            return f"{low} to {high}"
        least = "above" if self.above_minimum else "at least"
        most = "below" if self.below_maximum else "at most"
        return f"{least} {low}, {most} {high}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


def _spec(name: str, info: FieldInfo) -> FieldSpec:
    shown = next(item for item in info.metadata if isinstance(item, Shown))
    plain, optional = _without_none(info.annotation)
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


def _without_none(annotation: Any) -> tuple[Any, bool]:
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


FIELDS: Mapping[str, FieldSpec] = {name: _spec(name, info) for name, info in Settings.model_fields.items()}
