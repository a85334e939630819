"""What the tests of memory share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own, which nothing was measured for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
