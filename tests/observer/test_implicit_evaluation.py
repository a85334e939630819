"""Evaluations that no mode, loader or trainer announces are detected; training is not taken for one."""

from __future__ import annotations

import pytest

from tests.late_module import late_module
from tests.observer.observed_process import SCRIPTS, ObservedProcess, events_of, last_steps, observe, split_by_process
from tuner_tui.runs.events.types import Evaluated, Phase, Steps

pytestmark = pytest.mark.train

script = late_module("tests.observer.scripts.implicit_evaluations")

EVALUATING = [
    "no-loader", "in-eval-mode", "at-the-top", "broken-off", "broken-off-inside", "whole-inside", "beside-a-teacher",
]  # fmt: skip
TRAINING = ["teacher", "samples-saved", "clipped", "pairs"]
STORIES: dict[str, list[int]] = {
    "whole": [4, 8, 12],
    "by_batch": [4, 8, 12],
    "after_every_step": list(range(1, 13)),
    "also_before_the_first_step": [4, 8, 12],
    "only_at_the_end": [12],
    "in_eval_mode": [4, 8, 12],
    "in_eval_mode_after_every_step": list(range(1, 13)),
    "with_gradients_switched_off": [4, 8, 12],
    "adversarial": [],
    "rollouts": [],
    "rollouts_in_one_mode": [],
    "generator_first": [],
    "averages": [],
    "self_conditioned": [],
    "compiled": [],
}
"""Each with the steps after which it evaluates."""
PROCESSES = [*EVALUATING, *TRAINING, *STORIES]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> ObservedProcess:
    """All of them, one after the other."""
    seen = observe(tmp_path_factory.mktemp("implicit"), str(SCRIPTS / "implicit_evaluations.py"))
    assert (seen.exit_code, seen.errors) == (0, "")
    assert list(spent(seen)) == PROCESSES
    return seen


def spent(watched: ObservedProcess) -> dict[str, list[float]]:
    lines = (line.split() for line in watched.output.splitlines())
    return {name: list(map(float, seconds)) for name, *seconds in lines}


def totals(watched: ObservedProcess, name: str) -> tuple[Steps, float, float]:
    """The final counters, and the seconds of its evaluations and of held up steps by its own clock."""
    spent_s, held_up_s = spent(watched)[name]
    return last_steps(split_by_process(watched.events)[1 + PROCESSES.index(name)]), spent_s, held_up_s


@pytest.mark.parametrize("name", EVALUATING)
def test_an_evaluation_is_none_of_the_trainings_time(watched: ObservedProcess, name: str) -> None:
    final, spent_s, held_up_s = totals(watched, name)
    assert spent_s > 0
    assert 0.75 * spent_s <= final.eval_s <= 1.25 * (spent_s + held_up_s)
    assert (final.own_steps, final.micro_steps, final.samples) == (script.STEPS, script.STEPS, 4 * script.STEPS)


@pytest.mark.parametrize("name", TRAINING)
def test_what_every_step_does_and_a_function_of_torch_is_training(watched: ObservedProcess, name: str) -> None:
    final, _, held_up_s = totals(watched, name)
    assert final.own_steps == script.STEPS
    assert final.eval_s < 0.1 * final.train_s + held_up_s


def test_pairs_of_loaders_are_both_counted(watched: ObservedProcess) -> None:
    final, _, _ = totals(watched, "pairs")
    assert final.micro_steps == 2 * script.STEPS


@pytest.mark.parametrize("story", STORIES)
def test_gradients_or_modes_change_to_evaluate_or_to_train(watched: ObservedProcess, story: str) -> None:
    events = split_by_process(watched.events)[1 + PROCESSES.index(story)]
    [spent_s] = spent(watched)[story]
    steps = STORIES[story]
    assert last_steps(events).own_steps == script.STEPS
    assert [event.step for event in events_of(events, Evaluated)] == steps
    assert last_steps(events).eval_s >= 0.95 * spent_s
    assert last_steps(events).train_s >= (script.STEPS - 2) * script.BATCH_S
    assert (last_steps(events).eval_s > 0) == bool(steps)


def test_an_evaluation_lasts_although_gradients_are_disabled_for_each_batch(watched: ObservedProcess) -> None:
    events = split_by_process(watched.events)[1 + PROCESSES.index("by_batch")]
    assert [event.phase for event in events_of(events, Phase)].count("evaluating") == 3
