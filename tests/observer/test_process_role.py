"""Which process counts as the launched one."""

from __future__ import annotations

import sys

import pytest

from tuner_tui.observer.site._tuner_observer.process_role import MARKER, RANK_VARIABLES, is_launched, rank_and_world


@pytest.fixture(autouse=True)
def _clear_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that the first observed process sets is removed after each test."""
    monkeypatch.setenv(MARKER, "")


def test_ranks_of_a_launcher_are_launched_and_their_children_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "train.py"])
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv(MARKER, "1::/run")
    assert not is_launched("/run")
    assert is_launched("/another run"), "a run started from within a run"
    monkeypatch.setenv("RANK", "1")
    assert is_launched("/run")
    assert is_launched("/run"), "an exec keeps its pid"
    monkeypatch.setenv(MARKER, "1:1:/run")
    assert not is_launched("/run")


@pytest.mark.parametrize(
    "command",
    [["/venv/bin/torchrun"], ["/venv/bin/accelerate", "launch"], ["-u", "-m", "torch.distributed.run", "--standalone"]],
)
def test_launchers_do_not_count_as_launched(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", *command])
    assert not is_launched("/run")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, (3, 4)),
        ({"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}, (1, 2)),  # a process that Lightning starts
        ({"LOCAL_RANK": "0"}, (0, 1)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"RANK": "x", "WORLD_SIZE": "y"}, (0, 1)),
    ],
)
def test_rank_and_world_size(
    variables: dict[str, str], expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for pair in RANK_VARIABLES:
        for name in pair:
            monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert rank_and_world() == expected
