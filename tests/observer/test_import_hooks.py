"""Post-import hooks."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tuner_tui.observer.site._tuner_observer.import_hooks import PostImportFinder, call_after, call_around, call_before


def test_hooks_run_once_after_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "watched_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[ModuleType] = []

    def failing_hook(module: ModuleType) -> None:
        seen.append(module)
        raise RuntimeError("the observer's own fault")

    monkeypatch.setattr(sys, "meta_path", [PostImportFinder({"watched_module": failing_hook}), *sys.meta_path])
    assert importlib.util.find_spec("watched_module") is not None
    assert seen == []
    module = importlib.import_module("watched_module")
    assert seen == [module]
    assert module.__loader__.get_source("watched_module") == "value = 1\n"  # type: ignore[union-attr]
    del sys.modules["watched_module"]


def test_a_hooked_function_stays_as_it_is() -> None:
    def divide(number: int, by: int = 1) -> float:
        """Divide."""
        return number / by

    seen: list[object] = []

    def failing(*args: object, **kwargs: object) -> None:
        seen.append((args, kwargs))
        raise RuntimeError("the observer's own fault")

    owner = SimpleNamespace(divide=divide)
    call_before(owner, "divide", failing)
    call_after(owner, "divide", failing)
    assert owner.divide(6, by=4) == 1.5
    assert seen == [((6,), {"by": 4}), ((1.5, 6), {"by": 4})]
    assert (owner.divide.__name__, owner.divide.__doc__) == ("divide", "Divide.")
    with pytest.raises(ZeroDivisionError):
        owner.divide(1, by=0)
    assert len(seen) == 3


def test_a_warning_names_the_caller_of_a_hooked_function() -> None:
    owner = SimpleNamespace(make=lambda: warnings.warn("old", stacklevel=2))
    call_after(owner, "make", print)
    call_around(owner, "make", print, print)
    with pytest.warns(UserWarning, match="old") as caught:
        owner.make()
    assert [warning.filename for warning in caught] == [__file__]


def test_any_name_of_an_argument_is_passed_on() -> None:
    def apply(function: object, before: object = None, entered: object = None) -> tuple[object, ...]:
        return function, before, entered

    seen: list[object] = []
    owner = SimpleNamespace(apply=apply)
    call_before(owner, "apply", lambda **given: seen.append(given))
    call_after(owner, "apply", lambda result, **given: seen.append(given))
    call_around(owner, "apply", lambda **given: seen.append(given), lambda *_: None)
    names = {"function": 1, "before": 2, "entered": 3}
    assert owner.apply(**names) == (1, 2, 3)
    assert seen == [names] * 3
