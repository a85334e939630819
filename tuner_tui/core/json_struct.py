"""Converts frozen structs to and from JSON by their type hints.

Tolerant, because the files outlive the program version that wrote them. What becomes part of a path or a command, or
names a process, has a type of its own: `from_json` converts by it, and `checked` checks what msgspec has converted, so
that a value that does not fit never leaves its reader.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache, partial, reduce
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Meta, Struct, convert, to_builtins
from msgspec.structs import fields

from tuner_tui.core.clock import LATEST_T

MAX_PID = 2**31 - 1
"""The largest `pid_t`."""
LONGEST_PATH_BYTES, LONGEST_NAME_BYTES = 4095, 255
"""Linux's PATH_MAX and NAME_MAX."""
MAX_INT = 2**63 - 1
"""No figure of this program is larger; arithmetic with floats would overflow."""


class Check(Struct, frozen=True):
    """Accepts some values of a type; `meaning` completes "not …" for the others."""

    meaning: str
    accepts: Callable[[Any], object]

    def __call__(self, value: Any) -> Any:
        """The value. Raises `ValueError` if it is not accepted."""
        if not self.accepts(value):
            raise ValueError(f"not {self.meaning}")
        return value


def _matches(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern, re.ASCII).fullmatch


def _within(least: float, most: float) -> Callable[[float], object]:
    return lambda value: least <= value <= most  # false for NaN


def _is_path(text: str) -> bool:
    path = text.encode("utf-8", "replace")
    names = path.split(b"/")
    return 0 < len(path) <= LONGEST_PATH_BYTES and max(map(len, names)) <= LONGEST_NAME_BYTES and b"\0" not in path


IDENTIFIER = Check("an identifier", _matches(r"[a-z0-9][a-z0-9-]{0,63}"))
Identifier = Annotated[str, IDENTIFIER]
"""The name of a run or tuning, and of its folder. Never a path."""
HostName = Annotated[str, Check("the name of a host", _matches(r"(?!-)[^/\x00-\x1f\x7f]{0,255}"))]
GpuUuid = Annotated[str, Check("the UUID of a GPU", _matches(r"[A-Za-z0-9][A-Za-z0-9/-]{0,99}"))]
"""A word of CUDA_VISIBLE_DEVICES."""
JobId = Annotated[str, Check("the id of a Slurm job", _matches(r"[0-9]{1,19}"))]
PathText = Annotated[str, Check("a path", _is_path)]
AbsolutePath = Annotated[PathText, Check("an absolute path", lambda text: text.startswith("/"))]
ProgramPath = Annotated[PathText, Check("the path of a program", lambda text: not text.startswith("-"))]
WORD = Check("a word of a command", lambda text: isinstance(text, str) and "\0" not in text)
"""The one text that may hold surrogates: they stand for bytes of the command line that are not UTF-8."""
Word = Annotated[str, WORD]
VARIABLE_NAME = Check("the name of a variable", _matches(r"[^=\0]+"))
VariableName = Annotated[str, WORD, VARIABLE_NAME]
Pid = Annotated[int, Meta(ge=0, le=MAX_PID), Check("the id of a process", _within(0, MAX_PID))]
"""0: no process."""
StartTicks = Annotated[int, Check("the start of a process", _within(0, 1 << 62))]
SignalNumber = Annotated[int, Check("a signal", _within(1, 64))]
ExitCode = Annotated[int, Check("an exit code", _within(-255, 255))]
Count = Annotated[int, Meta(ge=0, le=1 << 20), Check("a number of things", _within(0, 1 << 20))]
Seconds = Annotated[float, Check("a duration", _within(0, LATEST_T))]
Time = Annotated[float, Meta(ge=0, le=LATEST_T), Check("a time", _within(0, LATEST_T))]
"""Seconds since the epoch."""
Whole = Annotated[int, Meta(ge=-MAX_INT, le=MAX_INT)]
Figure = Annotated[float, Meta(ge=-MAX_INT, le=MAX_INT)]


T = TypeVar("T")
Convert = Callable[[Any], Any]
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def from_json(cls: type[T], data: object, *, strict: bool = False) -> T:
    """Build a `cls` from parsed JSON.

    Unknown keys are ignored. A bad value of a field with a default is replaced by the default; of a required field, and
    of any field if `strict`, it raises `ValueError`.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{cls.__name__}: not an object")
    values = {}
    for name, converter, required in _fields(cls):  # type: ignore[arg-type]
        if name not in data:
            continue
        try:
            values[name] = converter(data[name])
        except (ValueError, TypeError, OverflowError):
            if required or strict:
                raise ValueError(f"{cls.__name__}.{name}: bad value") from None
    try:
        return cls(**values)
    except TypeError as error:
        raise ValueError(f"{cls.__name__}: {error}") from None


def checked(value: T) -> T:
    """The value, whose fields msgspec has converted. Raises `ValueError` where a checked type refuses."""
    for name, check in _field_checks(type(value)):  # type: ignore[arg-type]
        try:
            check(getattr(value, name))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return value


def to_json(value: Any, whole: bool = False) -> Any:
    """Convert `value` to what `json.dumps` accepts: NaN and infinity become strings, what users write its own form.

    Fields at their defaults are left out, unless it is to be `whole`.
    """
    if isinstance(value, Struct) and not value.__struct_config__.forbid_unknown_fields:
        parts = ((name, getattr(value, name), default) for name, default in _defaults(type(value)))
        return {name: to_json(part, whole) for name, part, default in parts if whole or not _at_default(part, default)}
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(key): to_json(item, whole) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item, whole) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    return to_json(to_builtins(value)) if isinstance(value, Struct) else str(value)


@cache
def _defaults(cls: type[Struct]) -> tuple[tuple[str, Any], ...]:
    """The fields of a struct with their defaults: `NODEFAULT`, a value, or the factory of an empty collection."""
    required = len(cls.__struct_fields__) - len(cls.__struct_defaults__)
    return tuple(zip(cls.__struct_fields__, (NODEFAULT,) * required + cls.__struct_defaults__, strict=True))


def _at_default(value: Any, default: Any) -> bool:
    return bool(value == default) or (not value and hasattr(default, "factory"))


@cache
def _fields(cls: type[Any]) -> tuple[tuple[str, Convert, bool], ...]:
    return tuple((info.name, _converter(info.type), info.required) for info in fields(cls))


@cache
def _field_checks(cls: type[Any]) -> tuple[tuple[str, Convert], ...]:
    hints = get_type_hints(cls, include_extras=True)
    return tuple((name, check) for name, hint in hints.items() if (check := _check_of(hint)) is not None)


def _check_of(hint: Any) -> Convert | None:
    """What checks a value of the type, `X`, `X | None` or `tuple[X, ...]`; None if nothing does."""
    arguments = get_args(hint)
    if get_origin(hint) is Annotated and any(isinstance(part, Check) for part in arguments):
        return _converter(hint)
    part_check = _check_of(arguments[0]) if get_origin(hint) in (Union, types.UnionType, tuple) else None
    if part_check is not None:
        return lambda value: [
            part_check(part) for part in (value if isinstance(value, tuple) else (value,)) if part is not None
        ]
    return None


def _converter(hint: Any) -> Convert:
    if hint in _SCALARS:
        return _SCALARS[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        checks = [check for check in arguments[1:] if isinstance(check, Check)]
        if not checks:
            return partial(convert, type=hint)
        converts = checks if WORD in checks else [_converter(arguments[0]), *checks]
        return lambda value: reduce(lambda converted, following: following(converted), converts, value)
    if origin in (Union, types.UnionType):
        return _union([_converter(a) for a in arguments if a is not type(None)])
    if origin is tuple:
        return _tuple(arguments)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(*map(_converter, arguments))
    if isinstance(hint, type) and issubclass(hint, Struct):
        return lambda value: from_json(hint, value)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint
    raise TypeError(f"no JSON form for {hint}")


def _union(converters: list[Convert]) -> Convert:
    def convert_first(value: Any) -> Any:
        if value is None:
            return None
        # In the order of the hint, the first that accepts the value: `int | float` keeps whole numbers whole.
        for converter in converters:
            try:
                return converter(value)
            except (ValueError, TypeError):
                continue
        raise ValueError("no alternative fits")

    return convert_first


def _tuple(arguments: tuple[Any, ...]) -> Convert:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        item = _converter(arguments[0])
        return lambda value: tuple(map(item, convert(value, list)))
    items = [_converter(argument) for argument in arguments]
    return lambda value: tuple(part(element) for part, element in zip(items, convert(value, list), strict=True))


def _mapping(key: Convert, item: Convert) -> Convert:
    """Converts each entry; bad entries are left out."""

    def convert_entries(value: Any) -> dict[str, Any]:
        entries = {}
        for name, element in convert(value, dict).items():
            try:
                entries[key(name)] = item(element)
            except (ValueError, TypeError, OverflowError):
                continue
        return entries

    return convert_entries


def _float(value: Any) -> float:
    if isinstance(value, str) and value.lower() in NOT_FINITE:
        return NOT_FINITE[value.lower()]
    return convert(value, float)


def _text(value: Any) -> str:
    return convert(value, str).encode("utf-8", "replace").decode("utf-8")  # a lone surrogate would break every terminal


_SCALARS: dict[Any, Convert] = {
    int: partial(convert, type=Whole),
    float: _float,
    bool: partial(convert, type=bool),
    str: _text,
    Any: lambda value: value,
}
