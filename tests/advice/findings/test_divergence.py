"""A loss that rises and stays high without becoming nan."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.fakes.situations import situation, training
from tuner_tui.advice.findings.non_finite import diverged, find_non_finite
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Evaluated, Finished, Metrics
from tuner_tui.runs.log_parsing.lines import parse_lines
from tuner_tui.settings.model import Settings


def logged(losses: list[float], **changes: Any) -> RunState:
    """A training after these losses."""
    return fold_all(
        training(loss=None, **changes), [Metrics(t=1.0, step=n, loss=loss) for n, loss in enumerate(losses)]
    )


GRADIENTS = "The gradients are not finite"


@pytest.mark.parametrize(
    ("logged", "sentence", "confidence"),
    [
        ([("1.0", "2.0"), ("1.0", "inf"), ("1.0", "inf"), ("1.0", "inf")], GRADIENTS, "certain"),
        ([("1.0", "2.0"), ("1.0", "inf"), ("1.0", "inf")], None, None),  # a loss scaler that searches for its scale
        ([("1.0", "2.0"), ("1.0", "nan"), ("1.0", "nan")], GRADIENTS, "certain"),
        ([("1.0", "2.0"), ("1.0", "nan")], None, None),
        ([("1.0", "2.0"), ("0.0", "nan")], GRADIENTS, "likely"),  # the Trainer's filter hides the loss
        ([("1.0", "2.0"), ("0.0", "inf")], None, None),
        ([("0.0", "nan"), ("1.0", "2.0")], None, None),  # it recovered
        ([("1.0", "2.0"), ("nan", "2.0")], "The loss is not finite", "certain"),
    ],
)
def test_values_that_a_log_shows(logged: list[tuple[str, str]], sentence: str | None, confidence: str | None) -> None:
    """A Trainer prints the losses and norms `logged`."""
    shown = [f"{{'loss': '{loss}', 'grad_norm': '{norm}', 'epoch': '0.1'}}" for loss, norm in logged]
    values_shown = find_non_finite(parse_lines(shown))
    assert (values_shown and values_shown[0], values_shown and values_shown[2]) == (sentence, confidence)


@pytest.mark.parametrize(("times", "words"), [(1, "the last logged loss is"), (3, "the last 3 logged losses are")])
def test_the_last_losses_are_counted_in_words(times: int, words: str) -> None:
    shown = find_non_finite(parse_lines(["{'loss': '1.0'}", *["{'loss': 'nan'}"] * times]))
    assert shown is not None
    assert shown[1] == (f"{words} nan or infinite",)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([2.3, 2701.0, 2650.0, 2712.0], True),
        ([2.3, 0.4, 0.1, 1.2, 3.4, 2.9], True),
        ([2.3, 2701.0, 2650.0], False),  # it may come back
        ([2.3, 0.1, 2.0, 0.1, 2.0, 2.1], False),  # two in a row
        ([2.3, 1.1, 0.4, 0.9, 0.6], False),
        ([1.0, 10.0, 10.0, 10.0], True),
        ([1.0, 9.9, 9.9, 9.9], False),
        ([0.7, 1.05, 0.0006, 0.017, 0.07, 0.15, 6.6, 4.6, 0.17], False),  # of tiny batches, and below the first
        ([-4.0, 80.0, 90.0, 95.0], False),  # of a negative loss no multiple is known
        ([12.0, 0.4, 1.9, 0.2, 1.1, 0.3, 25.0, 60.0, 41.0], False),  # it swings, as the sum over an episode does
        ([2.3, 0.4, 0.1, 20.0, 60.0, 15.0, 50.0, 12.0, 40.0], True),  # it swings only since it diverged
    ],
)
def test_losses_that_rise_tenfold_and_stay(losses: list[float], expected: bool) -> None:
    assert (diverged(situation(state=logged(losses))) is not None) is expected


def test_the_loss_of_one_of_two_adversaries_may_rise() -> None:
    assert diverged(situation(state=logged([1.4, 0.01, 0.9, 1.1, 0.9], in_effect={"optimizers": 2}))) is None


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([1.0, 10.0, 10.0, 10.0], True),
        ([1.0, 9.9, 9.9, 9.9], False),
        ([1.0, 10.0, 10.0], False),
        ([0.0, 10.0, 10.0, 10.0], False),
        ([50.0, 1.0, 20.0, 20.0, 20.0], False),  # below the first
        ([], False),
    ],
)
def test_printed_losses_that_rise_tenfold_and_stay(losses: list[float], expected: bool) -> None:
    log = ("options.loss_cutoff = 0.02", *(f"step {n} loss {loss}" for n, loss in enumerate(losses)))
    assert (diverged(situation(state=training(loss=None), log=log)) is not None) is expected


@pytest.mark.parametrize(
    ("evaluated", "rises"),
    [({3: 0.9, 5: 0.5}, False), ({3: 0.4, 5: 0.5}, True), ({1: 0.9, 2: 0.5}, True), ({5: 0.5}, True)],
    ids=["improves", "worse", "before", "single"],
)
def test_a_loss_may_rise_while_evaluations_improve(evaluated: dict[int, float], rises: bool) -> None:
    losses = [1.0, 0.1, 0.1, 2.0, 2.0, 2.0]
    log = [f"step {n} loss {loss}" for n, loss in enumerate(losses)]
    for step, loss in sorted(evaluated.items(), reverse=True):
        log.insert(step + 1, f"Validation loss: {loss}")
    assert (diverged(situation(state=training(loss=None), log=tuple(log))) is not None) is rises
    evaluations = tuple(Evaluated(t=1.0, step=step, metrics={"eval_loss": loss}) for step, loss in evaluated.items())
    state = replace(logged(losses), step=5, evaluations=evaluations)
    assert (diverged(situation(state=state)) is not None) is rises


@pytest.mark.parametrize("outcome", ["completed", "failed"])
def test_it_is_reported_after_the_end_with_a_smaller_rate(outcome: str) -> None:
    state = logged([2.3, 2701.0, 2650.0, 2712.0], finished=Finished(t=9.0, outcome=outcome))
    finding = diverged(situation(state=state, settings=Settings(learning_rate=0.1)))
    assert finding is not None
    assert finding.sentence == "The training diverged: the loss is 2,712"
    assert finding.remedies[0].title == "learning rate 0.1 → 0.05"


def test_a_rate_that_no_optimizer_bears_explains_a_large_first_loss() -> None:
    state = logged([5312.0], in_effect={"learning_rate": 1e6, "optimizer": "Adadelta"})
    assert diverged(situation(state=state)) is not None


@pytest.mark.parametrize(
    ("evaluated", "exploded"),
    [
        ([1948.19, 25368554.0], True),
        ([1948.19, 25368554.0, 120486.2, 1110.6], False),  # it came back
        ([0.001, 2.0], False),  # overfitting
        ([0.9, 0.4, 150.0], False),  # a poor evaluation, as with the batch norm of a first epoch
        ([9e6, 0.5, 900.0], False),  # below the first
        ([-3.0, 500.0], False),
        ([0.5], False),
        ([], False),
    ],
)
def test_an_evaluation_loss_that_explodes(evaluated: list[float], exploded: bool) -> None:
    steps = list(enumerate(evaluated))
    evaluations = tuple(Evaluated(t=1.0, step=step, metrics={"eval_loss": loss}) for step, loss in steps)
    log = tuple(f"Validation loss: {loss}" for loss in evaluated)
    for state, lines in ((training(loss=None, evaluations=evaluations), ()), (RunState(), log)):
        finding = diverged(situation(state=state, log=lines))
        assert (finding is not None) is exploded
        if finding is not None:
            assert finding.sentence == "The training diverged: the evaluation loss is 2.537e+07"
    assert (diverged(situation(state=training(loss=0.5, evaluations=evaluations))) is not None) is exploded
