"""What every test stands on: folders of its own, no network, no settings from the person's shell."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

OWN_FOLDERS = ("TUNER_STATE_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
# Nothing here judges the speed of the machine, and what fails is the change, not the draw.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, max_examples=25
)
settings.register_profile("full", settings.get_profile("default"), max_examples=100)  # what `.ci/run` uses
# `pytest --hypothesis-profile search` draws new examples.
settings.register_profile("search", settings.get_profile("full"), derandomize=False)
settings.load_profile("default")
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}


@pytest.fixture(autouse=True, scope="session")
def _clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run folders, caches and presets go to a temporary folder; nothing of the person's own is read or written."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("TUNER_")]:
            patch.delenv(name)
        for name in OWN_FOLDERS:
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        for name, value in OFFLINE.items():
            patch.setenv(name, value)
        for name in ("NO_COLOR", "PYTHONPATH", "CUDA_VISIBLE_DEVICES", "COLUMNS", "LINES"):
            patch.delenv(name, raising=False)
        if "PYTEST_XDIST_WORKER" in os.environ:  # trainings side by side: threads that spin for a core collapse
            patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Presets that one test saves are not seen by the next."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config-home"))


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that share a fixture, such as one training, on one worker: each worker would make its own."""
    for item in items:
        if isinstance(item, pytest.Function) and (shared := _shared_fixtures(item)):
            item.add_marker(pytest.mark.xdist_group(shared[0]))


def _shared_fixtures(item: pytest.Function) -> list[str]:
    """The fixtures of these tests that outlive `item`, sorted: `trainer` comes before what is derived from it."""
    definitions = [each[-1] for each in item._fixtureinfo.name2fixturedefs.values()]
    return sorted(
        fixture.argname if fixture.scope == "session" else f"{fixture.baseid}:{fixture.argname}"
        for fixture in definitions
        if fixture.baseid.startswith("tests/") and fixture.scope != "function"
    )


@pytest.fixture(scope="session")
def repository() -> Path:
    """The folder that holds the package, the presets and these tests."""
    return Path(__file__).resolve().parent.parent
