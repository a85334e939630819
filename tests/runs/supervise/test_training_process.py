"""When a signal is due, with a fake clock; the memory limit of a training."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Any

import pytest

from tuner_tui.runs.store.folder import Order
from tuner_tui.runs.supervise.training_process import LaunchSpec, StartedTraining, StopEscalation, StopTimeouts

PATIENCE = StopTimeouts(stop_s=60.0, kill_s=10.0, saving_s=300.0)


def ladder(order: Order, now: float = 0.0) -> StopEscalation:
    made = StopEscalation(PATIENCE)
    assert made.request(order, now)
    return made


@pytest.mark.parametrize(
    ("order", "looks"),
    [
        ("stop", [((59.0, True), None), ((61.0, True), SIGTERM)]),
        ("stop", [((100.0, True, None, 40.0), None), ((201.0, True, None, 40.0), SIGTERM)]),
        ("stop", [((299.0, True, None, None, True), None), ((61.0, True), SIGTERM)]),
        ("stop", [((301.0, True, None, None, True), SIGTERM)]),
        ("stop", [((0.0, False), SIGTERM)]),
        ("stop", [((299.0, True, 0.0), None), ((301.0, True, 0.0), SIGTERM)]),
        ("terminate", [((299.0, True, 0.0), None), ((301.0, True, 0.0), SIGTERM)]),
        ("kill", [((0.0, True), SIGTERM), ((9.0, True), None), ((10.0, True), SIGKILL), ((99.0, True), None)]),
        ("kill", [((0.0, True, 0.0), SIGTERM), ((9.0, True, 5.0), None), ((10.0, True, 5.0), SIGKILL)]),
    ],
)
def test_when_a_signal_is_due(order: Order, looks: list[tuple[tuple[Any, ...], Signals | None]]) -> None:
    made = ladder(order)
    assert [made.due(*seen) for seen, _ in looks] == [due for _, due in looks]


@pytest.mark.parametrize("order", ["stop", "terminate"])
def test_sigterm_once_and_never_sigkill_unordered(order: Order) -> None:
    made = ladder(order)
    assert made.due(0.0, False) is SIGTERM
    assert [made.due(float(now), False) for now in range(1, 10_000, 7)] == [None] * 1429


def test_a_later_kill_counts_its_grace_from_the_order() -> None:
    made = ladder("terminate")
    assert made.due(0.0, False) is SIGTERM
    assert made.request("kill", 100.0)
    assert made.due(105.0, False) is None
    assert made.due(110.0, False) is SIGKILL


def test_a_softer_order_changes_nothing() -> None:
    assert not StopEscalation(PATIENCE).request("checkpoint", 0.0)
    made = ladder("terminate")
    assert not made.request("stop", 1.0)
    assert not made.request("terminate", 1.0)
    assert made.order == "terminate"


PRINT_LIMIT = "import resource; print(resource.getrlimit(resource.RLIMIT_DATA)[0])"
START = f"""
import os, sys
from pathlib import Path
from tuner_tui.runs.supervise.training_process import LaunchSpec, StartedTraining
argv = (sys.executable, "-I", "-S", "-c", {PRINT_LIMIT!r})
training = StartedTraining(LaunchSpec(argv, "/", data_limit_bytes=int(sys.argv[1])), Path(sys.argv[2]))
os.wait()  # while `training` lives: what it holds would wait for a child that has ended when it is deleted
"""


@pytest.mark.parametrize(
    ("hard", "asked", "limit"), [("2097152", 1 << 40, 1 << 31), ("unlimited", 1 << 80, (1 << 63) - 1)]
)
def test_a_memory_limit_above_what_the_system_allows_is_the_systems(
    tmp_path: Path, hard: str, asked: int, limit: int
) -> None:
    shell = ["sh", "-c", f'ulimit -d {hard} && exec "$0" "$@"']
    subprocess.run([*shell, sys.executable, "-c", START, str(asked), str(tmp_path / "log")], check=True)
    assert (tmp_path / "log").read_text() == f"{limit}\n"


def test_a_missing_command_is_refused_under_a_memory_limit_which_the_supervisor_keeps_out_of(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(FileNotFoundError):
        StartedTraining(LaunchSpec(("/no/such/command",), "/", data_limit_bytes=1 << 30), tmp_path / "log")
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
