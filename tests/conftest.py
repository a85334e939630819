"""What every test stands on: folders of its own, no network, no settings from the person's shell."""

from __future__ import annotations

import gc
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.fakes.nvml.build import NO_COMPILER, build_library
from tests.late_module import LateModule, one_worker
from tuner_tui.core.procfs import PROC, all_processes, descendants_in, is_alive, read_command_line, read_proc_text

OWN_FOLDERS = ("TUNER_STATE_DIR", "XDG_CONFIG_HOME")
# Nothing here judges the speed of the machine, and what fails is the change, not the draw.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, max_examples=25
)
settings.register_profile("full", settings.get_profile("default"), max_examples=50)  # what `.ci/run full` uses
# `pytest --hypothesis-profile search` draws new examples.
settings.register_profile("search", settings.get_profile("full"), derandomize=False)
settings.load_profile("default")
COUNTER = itertools.count()
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}


END_S = 120.0
"""For what ends on its own after the last test, such as a supervisor whose training was killed."""
OF_PYTHON = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "torch/_inductor/compile_worker")
"""Processes that Python and torch keep until the program that started them ends."""


@pytest.fixture(autouse=True, scope="session")
def _no_process_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that a test has started outlives the tests. The first fixture, so that all others end before it."""
    yield
    folder = str(tmp_path_factory.getbasetemp())
    deadline_s = time.monotonic() + END_S
    while (left := _processes_of(folder)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert not left, f"The tests left processes running: {left}"


def _processes_of(folder: str) -> dict[int, str]:
    """Commands of the processes below this one, and of those that name `folder`, which is in the tests' environment."""
    processes = [process for process in all_processes() if process.pid != os.getpid()]
    below = {process.pid for process in descendants_in(processes, [os.getpid()])}
    left = [
        process
        for process in processes
        if process.pid in below
        or any(folder in read_proc_text(PROC / f"{process.pid}/{name}") for name in ("environ", "cmdline"))
    ]
    commands = {process.pid: " ".join(read_command_line(process.pid)) for process in left if is_alive(process)}
    return {pid: command for pid, command in commands.items() if not any(word in command for word in OF_PYTHON)}


@pytest.fixture(autouse=True, scope="session")
def _clean_environment(tmp_path_factory: pytest.TempPathFactory, _no_process_left: None) -> Iterator[None]:
    """Run folders, caches and presets go to a temporary folder; nothing of the person's own is read or written."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("TUNER_")]:
            patch.delenv(name)
        for name in OWN_FOLDERS:
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        is_worker = "PYTEST_XDIST_WORKER" in os.environ
        base = tmp_path_factory.getbasetemp()
        base.chmod(0o1700)  # as /tmp is: what looks for a project above a file leaves out the folders of other tests
        # One for all workers: they ask the same Python the same, which takes seconds each time.
        patch.setenv("XDG_CACHE_HOME", str((base.parent if is_worker else base) / "cache"))
        for name, value in OFFLINE.items():
            patch.setenv(name, value)
        for name in ("NO_COLOR", "PYTHONPATH", "CUDA_VISIBLE_DEVICES", "COLUMNS", "LINES"):
            patch.delenv(name, raising=False)
        if is_worker:  # trainings side by side: threads that spin for a core collapse
            patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Presets that one test saves are not seen by the next. A `tmp_path` for each would take most of a quick test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / f"config-home-{next(COUNTER)}"))


MOST_ID = 200
"""Characters of a parameter in the name of a test."""


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten the names of tests of long texts, which each worker sends with all that it collected and reports."""
    if isinstance(val, str | bytes) and len(val) > MOST_ID:
        return f"{val[:40]!a} and more, {len(val)} in all"
    return None


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that share a fixture, such as one training, on one worker: each worker would make its own."""
    for item in items:
        if not isinstance(item, pytest.Function) or item.get_closest_marker("xdist_group"):
            continue
        if any(isinstance(value, LateModule) for value in vars(item.module).values()):
            item.add_marker(one_worker)
        elif shared := _shared_fixtures(item):
            item.add_marker(pytest.mark.xdist_group(shared[0]))
    # Files with what takes long come first: begun last, it would be waited for with one core idle.
    slow = {item.path for item in items if item.get_closest_marker("full") or item.get_closest_marker("train")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """What was collected stays: looking through it for garbage again and again takes a sixth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


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


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled libnvidia-ml.so.1; skips where there is no compiler."""
    library = build_library(tmp_path_factory.mktemp("nvml"))
    if library is None:
        pytest.skip(NO_COMPILER)
    return library
