"""What is left of a trimmed library is what its user needs, with all that this needs in turn."""

from __future__ import annotations

import gc
import sys
from types import ModuleType

import pytest

from tuner_tui.hardware.gpu.strip_module import collect_young_garbage, strip_module

LIBRARY = """
from functools import wraps
FACTOR, UNUSED_NUMBER = 3, 4
def shouted(call):
    @wraps(call)
    def around(*given):
        return call(*given).upper()
    return around
class Base:
    def say(self): return helped()
class Said(Base):
    pass
class Unused(Base):
    def other(self): return unused()
def helped(): return "a" * FACTOR
@shouted
def wanted(): return Said().say()
def by_string(): return [part() for part in (lambda: inner,)][0]()
def inner(): return FACTOR
def unused(): return UNUSED_NUMBER
"""
USER = """
class User:
    def ask(self, library):
        return library.wanted(), getattr(library, "by_string")()
"""


def module(name: str, source: str) -> ModuleType:
    made = ModuleType(name)
    exec(source, vars(made))
    return made


def test_what_is_used_works_and_the_rest_is_gone() -> None:
    library, user = module("library", LIBRARY), module("user", USER)
    strip_module(library, user)
    assert user.User().ask(library) == ("AAA", 3)
    assert not {"Unused", "unused", "UNUSED_NUMBER"} & vars(library).keys()


def test_young_rubbish_is_collected_at_once_and_what_is_kept_stays() -> None:
    class Node:
        alive = 0

        def __init__(self) -> None:
            self.itself = self
            Node.alive += 1

        def __del__(self) -> None:
            Node.alive -= 1

    with collect_young_garbage():
        kept = Node()
        Node()
    assert Node.alive == 1
    assert kept.itself is kept
    assert gc.isenabled()


def test_the_driver_library_is_trimmed_to_what_is_called() -> None:
    pytest.importorskip("pynvml")
    from tuner_tui.hardware.gpu import nvml

    before = sys.modules.pop("pynvml")
    try:
        import pynvml

        strip_module(pynvml, sys.modules[nvml.__name__])
        assert len(vars(pynvml)) < 150
        assert {"nvmlInit", "nvmlDeviceGetMemoryInfo", "NVMLError", "nvmlEventSetWait_v2"} <= vars(pynvml).keys()
    finally:
        sys.modules["pynvml"] = before
