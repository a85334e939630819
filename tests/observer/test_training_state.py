"""A loop that goes on from a checkpoint without a part of its state, compared with the one that saved it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.observer.observed_process import SCRIPTS, observe_forked, printed_losses, run_python
from tuner_tui.inspection.faithful_resume import RankHistory, ResumeCheck, compare_resumed
from tuner_tui.runs.read.recorded_batches import read_batches, read_states
from tuner_tui.runs.store.folder import RunFolder

pytestmark = pytest.mark.train
SAVED_AT = 20
SCRIPT = str(SCRIPTS / "resumed_loop.py")
SENTENCES = {
    "weights": "the weights are not those of the checkpoint: 2 of 4 differ, 3.",
    "optimizer": "optimizer moments are empty",
    "scheduler": "the learning rate schedule is at step 0 instead of 20",
    "scaler": "gradient scaler back at 1,024 instead of 16,384",
    "step": "the step count (global_step) starts at 0 instead of 20",
    "epoch": "the epoch starts at 0 instead of 1",
    "position": "the data starts again at sample 96 instead of 160",
    "random": "random numbers of torch",
}


PARTS = ["none", *SENTENCES]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the loop that saves, and of those that go on from there without a part of its state."""
    folder = tmp_path_factory.mktemp("loops")
    saved = (SCRIPT, str(folder / "saved"))
    return observe_forked(folder, {"saved": saved, **{part: (*saved, part) for part in PARTS}})


def losses(folder: Path) -> list[str]:
    return printed_losses((folder / "output").read_text())


def history(folder: Path) -> RankHistory:
    run = RunFolder(folder / "run")
    return RankHistory(read_states(run, 0), read_batches(run))


def stopped(recorded: RankHistory) -> RankHistory:
    """What the run had recorded if it had ended with the checkpoint."""
    states = [state for state in recorded.states if state.after < SAVED_AT or state.at == "checkpoint"]
    return RankHistory(states, [batch for batch in recorded.batches if batch.step <= SAVED_AT])


@pytest.mark.parametrize("missing", PARTS)
def test_the_part_that_was_not_restored_is_named_first(runs: dict[str, Path], missing: str) -> None:
    saved = history(runs["saved"])
    if missing == "none":
        assert losses(runs["none"]) == losses(runs["saved"])[SAVED_AT:]
    for parent in (saved, stopped(saved)):
        mismatches, compared = compare_resumed(parent, history(runs[missing]), SAVED_AT, counts_on=False)
        assert [each.sentence.startswith(SENTENCES[missing]) for each in mismatches[:1]] == [True] * (missing != "none")
        check = ResumeCheck("r001", SAVED_AT, 8, mismatches, compared)
        assert check.verdict == ("faithful" if missing == "none" else "not faithful")
        assert {"weights", "optimizer", "learning rate", "gradient scaler", "epoch", "data"}.issubset(compared)


def test_losses_are_the_same_without_the_observer(runs: dict[str, Path], tmp_path: Path) -> None:
    assert printed_losses(run_python(SCRIPT, str(tmp_path)).stdout) == losses(runs["saved"])


def test_a_run_that_goes_on_counts_from_the_steps_of_its_optimizer(runs: dict[str, Path]) -> None:
    resumed = history(runs["none"])
    assert [state.after for state in resumed.states] == [SAVED_AT, SAVED_AT + 1, SAVED_AT + 2]
    assert [batch.step for batch in resumed.batches] == list(range(SAVED_AT + 1, 37))


def test_few_states_are_recorded(runs: dict[str, Path]) -> None:
    lines = (runs["saved"] / "run" / "states-rank0.jsonl").read_text().splitlines()
    states = [(state["after"], state["at"]) for state in map(json.loads, lines)]
    after = [(SAVED_AT, "checkpoint"), (20, "step"), (21, "step"), (22, "step")]
    assert states == [(0, "start"), (1, "step"), (2, "step"), *after]
