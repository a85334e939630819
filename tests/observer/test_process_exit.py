"""How a process ends: out of memory, its exit code, and what is written of a message."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from tests.observer.observed_process import observe_forked, observed_in
from tuner_tui.observer.site._tuner_observer.process_exit import is_out_of_memory, redact
from tuner_tui.observer.site._tuner_observer.process_role import MARKER, RANK_VARIABLES, is_launched, rank_and_world
from tuner_tui.observer.site._tuner_observer.session import PHASE_BURST, Session
from tuner_tui.runs.events.types import Ended

EXAMPLES = yaml.load(Path(__file__).with_name("process_exit.yaml").read_text(), yaml.CSafeLoader)


@pytest.mark.parametrize(("kind", "message", "expected"), EXAMPLES["what counts as out of memory"])
def test_what_counts_as_out_of_memory(kind: str, message: str, expected: bool) -> None:
    assert is_out_of_memory(kind, message) is expected


STEP = """
import sys, torch
weight = torch.nn.Parameter(torch.zeros(1))
weight.sum().backward()
torch.optim.SGD([weight], 0.1).step()
"""


@pytest.mark.train
def test_the_code_given_to_sys_exit(tmp_path: Path) -> None:
    codes = {
        "sys.exit(3)": 3, "sys.exit()": 0, "sys.exit('no data')": 1, "raise SystemExit": None, "pass": None,
    }  # fmt: skip
    for code in codes:
        (tmp_path / f"{code}.py").write_text(STEP + code)
    folders = observe_forked(tmp_path / "runs", {code: (str(tmp_path / f"{code}.py"),) for code in codes})
    assert {code: observed_in(folder).of(Ended)[0].exit_code for code, folder in folders.items()} == codes


def test_a_message_is_written_without_colours_and_secrets() -> None:
    """torch.load emphasises a part of its message; a token may be anywhere."""
    assert redact("two options, \x1b[1mdo those steps only if\x1b[0m you trust it") == (
        "two options, do those steps only if you trust it"
    )
    assert "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH" not in redact("bad token hf_abcdefghijklmnopqrstuvwxyzABCDEFGH")


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


def test_phases_are_rate_limited_except_the_last(tmp_path: Path) -> None:
    session = Session(str(tmp_path), launched=True)
    session.open()
    for _ in range(50):
        session.enter_phase("evaluating")
        session.enter_phase("training")
    session.enter_phase("ending")
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    phases = [line["phase"] for line in lines if line["kind"] == "phase"]
    assert phases.count("evaluating") <= PHASE_BURST
    assert len(phases) <= 2 * PHASE_BURST + 2  # training takes the place of each pause that was written
    assert phases[-1] == "ending"
