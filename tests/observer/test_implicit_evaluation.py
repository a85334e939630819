"""Evaluations that no mode, loader or trainer announces are detected; training is not taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observer.observed_process import (
    SCRIPTS,
    ObservedProcess,
    events_of,
    last_steps,
    observe,
    split_by_process,
)
from tests.observer.scripts import estimated_loss, folds, modes_in_the_body, no_grad_loops
from tests.observer.scripts import implicit_evaluations as script
from tuner_tui.runs.events.types import Evaluated, Phase, Steps

pytestmark = pytest.mark.train

CASES = [case[0] for case in script.CASES]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> ObservedProcess:
    """All of them, one after the other."""
    seen = observe(tmp_path_factory.mktemp("implicit"), str(SCRIPTS / "implicit_evaluations.py"))
    assert seen.exit_code == 0, seen.errors
    return seen


def found(watched: ObservedProcess, name: str) -> tuple[Steps, float, float]:
    """The final counters, and the seconds of its evaluations and of held up steps by its own clock."""
    spent = {line.split()[0]: line.split()[1:] for line in watched.output.splitlines()}
    spent_s, held_up_s = map(float, spent[name])
    return last_steps(split_by_process(watched.events)[1 + CASES.index(name)]), spent_s, held_up_s


@pytest.mark.parametrize("name", CASES[:-4])
def test_an_evaluation_is_none_of_the_trainings_time(watched: ObservedProcess, name: str) -> None:
    final, spent_s, held_up_s = found(watched, name)
    assert spent_s > 0
    assert 0.75 * spent_s <= final.eval_s <= 1.25 * (spent_s + held_up_s)
    assert (final.own_steps, final.micro_steps, final.samples) == (script.STEPS, script.STEPS, 4 * script.STEPS)


@pytest.mark.parametrize("name", CASES[-4:])
def test_what_every_step_does_and_a_function_of_torch_is_training(watched: ObservedProcess, name: str) -> None:
    final, _, held_up_s = found(watched, name)
    assert final.own_steps == script.STEPS
    assert final.eval_s < 0.1 * final.train_s + held_up_s


def test_pairs_of_loaders_are_both_counted(watched: ObservedProcess) -> None:
    final, _, _ = found(watched, "pairs")
    assert final.micro_steps == 2 * script.STEPS


@pytest.mark.full
def test_time_in_eval_mode_without_a_loader_is_evaluation(tmp_path: Path) -> None:
    seen = observe(tmp_path, str(SCRIPTS / "evaluation_without_loader.py"))
    assert seen.exit_code == 0, seen.errors
    final = last_steps(seen.events)
    assert (final.own_steps, final.micro_steps, final.samples) == (8, 8, 32)
    assert final.eval_s >= 2 * 0.2
    assert final.eval_s == pytest.approx(float(seen.output), rel=0.25)


@pytest.mark.full
def test_batches_fetched_before_the_mode_changes_are_counted_where_they_belong(tmp_path: Path) -> None:
    seen = observe(tmp_path, str(SCRIPTS / "modes_in_the_body.py"))
    assert seen.exit_code == 0, seen.errors
    final, steps = last_steps(seen.events), modes_in_the_body.EPOCHS * modes_in_the_body.BATCHES
    assert (final.own_steps, final.micro_steps, final.samples) == (steps, steps, steps * modes_in_the_body.SIZE)
    assert (final.epoch_batch, final.epoch_batches, final.epochs_started) == (5, 5, 3)
    assert [event.step for event in seen.of(Evaluated)] == [5, 10, 15]


@pytest.mark.full
def test_the_model_of_another_fold_in_eval_mode_hides_no_step(tmp_path: Path) -> None:
    seen = observe(tmp_path, str(SCRIPTS / "folds.py"))
    assert seen.exit_code == 0, seen.errors
    final, steps = last_steps(seen.events), folds.FOLDS * folds.BATCHES
    assert (final.own_steps, final.micro_steps, final.samples) == (steps, steps, steps * folds.SIZE)


@pytest.mark.full
def test_an_estimate_without_gradients_is_evaluation_while_it_lasts(tmp_path: Path) -> None:
    seen = observe(tmp_path, str(SCRIPTS / "estimated_loss.py"))
    assert seen.exit_code == 0, seen.errors
    final = last_steps(seen.events)
    steps = estimated_loss.STEPS + 1
    assert (final.own_steps, final.micro_steps, final.samples) == (steps, steps * estimated_loss.ACCUMULATION, 0)
    assert final.eval_s == pytest.approx(float(seen.output), rel=0.1)
    phases = [(event.phase, event.step) for event in seen.of(Phase)]
    evaluations = seen.of(Evaluated)
    assert [event.step for event in evaluations] == [4, 8, 12]
    assert sum(event.seconds or 0.0 for event in evaluations) == pytest.approx(final.eval_s, abs=1e-3)
    assert phases[1:6] == [("training", 1), ("evaluating", 4), ("training", 4), ("evaluating", 8), ("training", 8)]


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> ObservedProcess:
    """Loops without a loader."""
    seen = observe(tmp_path_factory.mktemp("loops"), str(SCRIPTS / "no_grad_loops.py"))
    assert (seen.exit_code, seen.errors) == (0, "")
    return seen


@pytest.mark.parametrize("story", no_grad_loops.STORIES, ids=lambda story: story.__name__)
def test_gradients_or_modes_change_to_evaluate_or_to_train(loops: ObservedProcess, story: no_grad_loops.Story) -> None:
    events = split_by_process(loops.events)[1 + list(no_grad_loops.STORIES).index(story)]
    [spent_s] = [float(line.split()[1]) for line in loops.output.splitlines() if line.startswith(story.__name__ + " ")]
    steps = no_grad_loops.STORIES[story]
    assert last_steps(events).own_steps == no_grad_loops.STEPS
    assert [event.step for event in events_of(events, Evaluated)] == steps
    assert last_steps(events).eval_s >= 0.95 * spent_s
    assert last_steps(events).train_s >= (no_grad_loops.STEPS - 2) * no_grad_loops.BATCH_S
    assert (last_steps(events).eval_s > 0) == bool(steps)
