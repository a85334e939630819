"""Post-import hooks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tuner_tui.observer.site._tuner_observer.import_hooks import PostImportFinder


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
