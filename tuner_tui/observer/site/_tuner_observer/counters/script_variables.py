"""The functions that lead to a step, their variables, and what these are by their names: a length, or a batch."""

from __future__ import annotations

import dis
import functools
import inspect
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

from ..names import NAMES

MAX_FRAMES = 30
MAX_LENGTH = 10**9
LIBRARY_FOLDERS = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


def kind_of_code(path: str) -> str:
    """Whether code is of the `script`, of a `library` that it trains with, or of something `other` without loops.

    A forked process has the frames of its parent, whose loop over the ranks is none of the training: the standard
    library's frames are in between.
    """
    if any(part in path for part in LIBRARY_FOLDERS):
        return "other" if any(part + "torch" + os.sep in path for part in LIBRARY_FOLDERS) else "library"
    outside = path.startswith((os.path.dirname(os.__file__) + os.sep, "<")) or "_tuner_observer" in path
    return "other" if outside else "script"


def calling_frames(frame: FrameType | None, most: int) -> Iterator[FrameType]:
    """`frame` and those of its callers, the innermost first."""
    while frame is not None and most:
        yield frame
        frame, most = frame.f_back, most - 1


def variables_of(frame: FrameType) -> Mapping[str, Any]:
    """The local variables of a function, in a dictionary that keeps nothing alive; none where it may hold them all."""
    if sys.version_info >= (3, 13) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return frame.f_locals
    # Before Python 3.13 a frame has one dictionary of its variables: reading them would write into the one that the
    # script has from `config = locals()`.
    if holds_variables(frame.f_code):
        return {}
    variables = frame.f_locals
    # It keeps the values as of the last call: a batch or an output would occupy its memory until the function returns.
    values = dict(variables)
    code = frame.f_code
    for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        variables.pop(name, None)
    return values


@functools.lru_cache(maxsize=1000)
def holds_variables(code: CodeType) -> bool:
    """Whether a function may get the dictionary of its variables: by `locals`, `f_locals`, or `vars()`."""
    read = dis.get_instructions(code) if "vars" in code.co_names else ()
    named = (f"{each.opname[:4]} {each.argval}" for each in read if each.opname[:5] not in ("PRECA", "CACHE", "PUSH_"))
    return "LOAD vars CALL 0" in " ".join(named) or not {"locals", "f_locals"}.isdisjoint(code.co_names)


def item_of(owner: Any, key: Any) -> Any:
    """A named member of settings, whose attributes may be its items as in `wandb.config` and OmegaConf."""
    return owner.get(key) if has_items(owner) and isinstance(key, str) else None


def has_items(owner: Any) -> bool:
    """Whether this is a mapping, or behaves like one without being derived from it."""
    return all(hasattr(type(owner), name) for name in ("keys", "items", "get", "__getitem__"))


def named_length(frame: FrameType | None) -> dict[str, int]:
    """`epochs`, `steps` and `start`, as far as functions from `frame` outwards name them."""
    length: dict[str, int] = {}
    for name, value, is_setting in _named_values(frame):
        if type(value) not in (int, float) or not 0 < value < MAX_LENGTH or value != int(value):
            continue
        plain = name.replace("_", "").lower()
        if is_setting and plain in NAMES["member_epochs"]:
            length.setdefault("epochs", int(value))
        for kind in ("epochs", "steps", "start"):
            if plain in NAMES[kind]:
                length.setdefault(kind, int(value))
    return length


def named_batch(frame: FrameType | None, delivered: Iterable[int] = ()) -> int | None:
    """The rows of what a model has computed for the step, else of what it was given, if a loader has `delivered` so
    many before, or functions from `frame` outwards name a batch of so many; or the number of indices by which it was
    drawn.

    It tells the batch of a step without a loader, such as one from a replay buffer; None if several sizes fit.
    """
    sizes = set(delivered)
    indexed: set[int] = set()
    rows: set[int] = set()
    given: set[int] = set()
    for name, value, _ in _named_values(frame):
        plain, shape = name.replace("_", "").lower(), getattr(value, "shape", None)
        if type(value) is int and plain.endswith(tuple(NAMES["batch"])):
            sizes.add(value)
        elif shape and hasattr(type(value), "grad_fn"):
            draws = plain in NAMES["index"] and len(shape) == 1
            (rows if value.grad_fn is not None else indexed if draws else given).add(int(shape[0]))
    # The outputs of a batch of sequences may have a row for each of their tokens.
    flattened = {each for each in sizes & given if not rows or any(row > each > 1 and row % each == 0 for row in rows)}
    batches = sizes & rows or indexed & (rows | given) or flattened
    return batches.pop() if len(batches) == 1 else None


def _named_values(innermost: FrameType | None) -> Iterator[tuple[str, Any, bool]]:
    """What the functions from `innermost` outwards name. Those of a library count until the script is reached, because
    the step is made in it."""
    in_library = True
    for frame in calling_frames(innermost, MAX_FRAMES):
        kind = kind_of_code(frame.f_code.co_filename)
        in_library = in_library and kind != "script"
        if kind == "script" or (in_library and kind == "library"):
            yield from _named_in(frame)


def _named_in(frame: FrameType) -> Iterator[tuple[str, Any, bool]]:
    """Names and values, and whether each is a member of settings or a constant."""
    for variables in (variables_of(frame), frame.f_globals):
        for name, value in list(variables.items()):
            yield name, value, name.isupper()
            if name.strip("_").lower() in NAMES["settings"]:
                yield from ((member, each, name != "self") for member, each in _members(value))


def _members(owner: Any) -> Iterator[tuple[str, Any]]:
    members: Mapping[Any, Any] = owner if has_items(owner) else getattr(owner, "__dict__", {})
    for name, value in list(members.items()):
        if not isinstance(name, str):
            continue
        yield name, value
        if name in ("config", "args", "cfg", "hparams", "opt") and hasattr(value, "__dict__"):
            yield from [each for each in list(vars(value).items()) if isinstance(each[0], str)]
