"""Which Ray cluster is used, without Ray. Tunings on a real one: tests/cli/commands/test_tune_on_ray.py."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.tuning.parallel.ray_cluster import connect


@dataclass
class Init:
    """Stands for `ray.init`: `fails` when it is asked to join a cluster."""

    fails: Exception | None = None
    calls: list[tuple[str, bool]] = field(default_factory=list)

    def __call__(self, address: str, **options: Any) -> None:
        self.calls.append((address, threading.current_thread() is threading.main_thread()))
        if self.fails is not None and address == "auto":
            raise self.fails


def test_a_cluster_that_is_there_is_joined() -> None:
    init = Init()
    connect(init)
    assert [address for address, _ in init.calls] == ["auto"]


def test_without_one_a_cluster_is_started_by_a_thread_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray asks the kernel to end its processes with the thread that started them."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    init = Init(ConnectionError("Could not find any running Ray instance."))
    connect(init)
    assert init.calls[-1] == ("local", True)


def test_an_address_that_was_given_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    init = Init(ConnectionError("Traceback:\n  File x\nNo cluster at head:6379."))
    with pytest.raises(LaunchError, match=r"cannot be used: No cluster at head:6379\.$"):
        connect(init)
    assert len(init.calls) == 1


def test_a_cluster_of_another_version_and_one_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LaunchError, match="Version mismatch"):
        connect(Init(RuntimeError("Version mismatch: The cluster was started with Ray 2.9.")))
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    over = threading.Event()
    with pytest.raises(LaunchError, match="head:6379 did not answer"):
        connect(lambda address, **options: over.wait(60), connect_s=0.01)
    over.set()
