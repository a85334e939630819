"""Frees the memory of those parts of a large module that this program does not use."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from inspect import unwrap
from types import CodeType, FunctionType, ModuleType

YOUNGEST_GENERATION = 0
"""The youngest generation of Python's garbage collector."""


def strip_module(library: ModuleType, user: ModuleType) -> None:
    """Leaves in `library` what the code of `user` mentions, by name or as a string, and all that those need in turn.

    What it needs is read from the compiled code, so a name that is put together while the program runs is missed.
    """
    names = vars(library)
    kept: set[str] = set()
    new = {*_names_in(vars(user).values())} & names.keys()
    while new:
        kept |= new
        new = ({*_names_in(names[name] for name in new)} & names.keys()) - kept
    for name in names.keys() - kept:
        if not name.startswith("__"):
            del names[name]


@contextmanager
def collect_young_garbage() -> Iterator[None]:
    """Collects what was made within and is needed no more: it is still young, so that all else is left out of it."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect(YOUNGEST_GENERATION)


def _names_in(things: Iterable[object]) -> Iterator[str]:
    """All names and strings in the code of functions, and of the functions of classes and what these derive from."""
    for thing in things:
        if isinstance(thing, FunctionType):
            yield from _names_in_code(thing.__code__)
            yield from _names_in_code(unwrap(thing).__code__)
        elif isinstance(thing, type):
            yield from (base.__name__ for base in thing.__bases__)
            yield from _names_in(
                function
                for function in (getattr(value, "__func__", value) for value in vars(thing).values())
                if isinstance(function, FunctionType)
            )


def _names_in_code(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _names_in_code(constant)
