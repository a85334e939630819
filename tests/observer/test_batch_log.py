"""The rows of each step, from loops whose broken row is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observer.observed_process import SCRIPTS, observe_forked
from tuner_tui.inspection.suspect_batches import StepBatch, find_suspects
from tuner_tui.runs.events.types import NotFinite
from tuner_tui.runs.read.recorded_batches import read_batches
from tuner_tui.runs.store.codec import decode_events
from tuner_tui.runs.store.folder import RunFolder

pytestmark = pytest.mark.train
BAD_ROW = 61


LOOPS = ["plain", "workers", "own-batches", "single", "in-order", "accelerate", "evaluates"]
UNNUMBERED = ["stream", "any-order"]
FAILING = ["plain", "workers"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of all loops, and of those that cannot load a row."""
    script = str(SCRIPTS / "poisoned_row.py")
    cases = {loop: (script, loop, str(BAD_ROW)) for loop in (*LOOPS, *UNNUMBERED)}
    cases |= {f"{loop}-fails": (script, loop, str(-BAD_ROW)) for loop in FAILING}
    return observe_forked(tmp_path_factory.mktemp("loops"), cases)


def batches_of(folder: Path) -> list[StepBatch]:
    return read_batches(RunFolder(folder / "run"))


def broken_steps(folder: Path) -> list[NotFinite]:
    lines = (folder / "run" / "events.jsonl").read_bytes().splitlines(keepends=True)
    return [event for event in decode_events(lines) if isinstance(event, NotFinite)]


@pytest.mark.parametrize("loop", LOOPS)
def test_the_step_whose_loss_is_nan_first_had_the_broken_row(runs: dict[str, Path], loop: str) -> None:
    batches = batches_of(runs[loop])
    suspect, *_ = find_suspects(batches, failed=False).suspects
    assert (suspect.kind, BAD_ROW in suspect.rows) == ("not finite", True)
    first = next(batch for batch in batches if BAD_ROW in batch.rows_of(None))
    assert suspect.batch == first
    assert [event.step for event in broken_steps(runs[loop])][:1] == [first.step]
    assert len(suspect.rows) == (1 if loop == "single" else 8), "of an accumulated step one micro batch"
    epoch = [row for batch in batches if batch.epoch == 1 for row in batch.rows_of(None)]
    assert sorted(epoch) == list(range(96))


@pytest.mark.parametrize("loop", FAILING)
def test_a_row_that_cannot_be_loaded_is_in_the_step_that_never_came(runs: dict[str, Path], loop: str) -> None:
    batches = batches_of(runs[f"{loop}-fails"])
    [suspect] = find_suspects(batches, failed=True).suspects
    assert (suspect.kind, BAD_ROW in suspect.rows) == ("unfinished", True)
    assert suspect.batch.step == len(batches)


@pytest.mark.parametrize("loop", UNNUMBERED)
def test_rows_that_nobody_can_number_are_unknown(runs: dict[str, Path], loop: str) -> None:
    batches = batches_of(runs[loop])
    assert [batch.rows for batch in batches] == [None] * 24
    assert all(batch.losses for batch in batches)
