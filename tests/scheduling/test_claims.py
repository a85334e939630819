"""What the queues of two users tell each other."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.scheduling.fake_cards import FakeCards
from tuner_tui.core.procfs import ProcessId, identify_process
from tuner_tui.core.units import GIB
from tuner_tui.runs.supervise.run_processes import ProcessSnapshot
from tuner_tui.scheduling.claims import MAX_FILE_BYTES, SharedClaims
from tuner_tui.scheduling.occupancy import StartedRun, process_tree, read_places

TREE = partial(process_tree, ProcessSnapshot())
SELF = identify_process(os.getpid())
RUN = StartedRun("run r007", keys=frozenset({"GPU-fake-0"}), bound=True, peak_bytes=50 * GIB, lead=SELF)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "claims"


def seen_by_another(folder: Path) -> tuple[StartedRun, ...]:
    """What another user than this one reads."""
    return SharedClaims(folder, uid=os.getuid() + 1).of_others(TREE)


def test_another_user_holds_the_place_of_a_run_that_has_not_allocated_yet(folder: Path, tmp_path: Path) -> None:
    SharedClaims(folder).publish([RUN])
    others = seen_by_another(folder)
    first, second, _ = read_places(FakeCards(tmp_path / "cards"), others, cores=4)
    assert (first.claimed_bytes, second.claimed_bytes) == (50 * GIB, 0)
    assert first.holders[0].name.endswith(": run r007")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE((folder / f"{os.getuid()}.json").stat().st_mode) == 0o644


def test_own_claims_are_not_counted_twice(folder: Path) -> None:
    mine = SharedClaims(folder)
    mine.publish([RUN])
    assert mine.of_others(TREE) == ()


def test_a_claim_ends_with_its_process(folder: Path) -> None:
    assert SELF is not None
    SharedClaims(folder).publish([replace(RUN, lead=ProcessId(SELF.pid, SELF.start_ticks + 1))])
    assert seen_by_another(folder) == ()
    SharedClaims(folder).publish([replace(RUN, lead=ProcessId(4_000_000, 1))])
    assert seen_by_another(folder) == ()


def test_a_claim_for_a_process_of_somebody_else_counts_nothing(folder: Path) -> None:
    """The file says that it is another user's, and its owner is not that user."""
    SharedClaims(folder, uid=os.getuid() + 7).publish([RUN])
    assert SharedClaims(folder).of_others(TREE) == ()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", json.dumps({"claims": [{}]}), "[" * 5000, "x" * (MAX_FILE_BYTES * 2)]
)
def test_what_another_user_writes_breaks_nothing(folder: Path, content: str) -> None:
    SharedClaims(folder).publish([RUN])
    (folder / f"{os.getuid()}.json").write_text(content)
    (folder / "notes.txt").write_text(content)
    os.mkfifo(folder / "12345.json")
    assert seen_by_another(folder) == ()
