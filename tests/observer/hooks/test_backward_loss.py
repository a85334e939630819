"""The loss of a loop that prints none, its position, and its length as its variables say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observer.observed_process import SCRIPTS, last_steps, observe
from tests.observer.scripts import two_losses, two_trainings
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import BACKWARD, Metrics, Plan, Steps


@pytest.mark.train
def test_loss_position_and_length_of_a_loop_that_says_nothing(tmp_path: Path) -> None:
    found = observe(tmp_path, str(SCRIPTS / "unlogged_loss.py"))
    assert found.exit_code == 0, found.errors
    # The weight is 0 at first, so that the loss (w - 1)² is 1, however it is divided among micro batches.
    metrics = found.of(Metrics)
    assert metrics[0].loss == pytest.approx(1.0)
    assert metrics[0].source == BACKWARD
    assert metrics[-1].step == 6
    final = last_steps(found.events)
    assert (final.own_steps, final.micro_steps, final.samples) == (6, 18, 36)
    assert (final.epoch_batch, final.epoch_batches, final.epochs_started) == (9, 9, 2)
    assert [(plan.total_steps, plan.guessed) for plan in found.of(Plan) if plan.total_steps] == [(6, True)]
    state = fold_all(RunState(), found.events)
    assert (state.total_steps, state.total_guessed, state.position) == (6, True, (9, 9))


@pytest.mark.train
def test_of_several_losses_in_a_step_it_is_the_first(tmp_path: Path) -> None:
    found = observe(tmp_path, str(SCRIPTS / "two_losses.py"))
    assert found.exit_code == 0, found.errors
    losses = [event.loss for event in found.of(Metrics)]
    assert (losses[0], losses[-1]) == (1.0, float(two_losses.STEPS))
    assert all(loss is not None and loss > 0 for loss in losses)
    final = last_steps(found.events)
    assert (final.own_steps, final.micro_steps) == (two_losses.STEPS, two_losses.STEPS)


@pytest.mark.train
def test_the_length_grows_by_that_of_another_training(tmp_path: Path) -> None:
    found = observe(tmp_path, str(SCRIPTS / "two_trainings.py"))
    assert found.exit_code == 0, found.errors
    totals = [two_trainings.BATCHES * epochs for epochs in (two_trainings.EPOCHS[0], sum(two_trainings.EPOCHS))]
    assert [plan.total_steps for plan in found.of(Plan) if plan.total_steps] == totals == [12, 32]
    assert last_steps(found.events).own_steps == totals[-1]


def test_a_guessed_length_that_proves_wrong_is_dropped() -> None:
    guess = Plan(t=0.0, rank=0, total_steps=10, guessed=True)
    steps = [Steps(t=float(step), rank=0, step=step, own_steps=step) for step in (5, 11, 12)]
    assert fold_all(RunState(), [guess, steps[0]]).total_steps == 10
    assert fold_all(RunState(), [guess, *steps[:2]]).total_steps == 11  # it counts from 0 to 10
    assert fold_all(RunState(), [guess, steps[0], Steps(t=9.0, rank=0, step=20, own_steps=20)]).total_steps is None
    said = Plan(t=0.0, rank=0, total_steps=30)
    assert fold_all(RunState(), [said, guess]).total_steps == 30
