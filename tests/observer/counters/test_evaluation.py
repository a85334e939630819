"""Telling evaluations from training by where gradients are disabled."""

from __future__ import annotations

import pytest

from tuner_tui.observer.site._tuner_observer.counters.evaluation import EvaluationPlaces

HERE, THERE = ("here", 1), ("there", 2)


def passed(*calls: int, optimizers: int = 1) -> list[bool]:
    """What one place is taken for after so many steps."""
    places = EvaluationPlaces()
    return [places.evaluates(HERE, call, optimizers) for call in calls]


@pytest.mark.parametrize(
    ("calls", "optimizers", "evaluates"),
    [
        ((20, 40, 60), 1, [True] * 3),
        ((20, 20, 20, 20, 40), 1, [True] * 5),
        ((1, 2, 3, 4, 5, 6), 1, [True] * 6),
        ((2, 4, 6, 8, 10, 12), 2, [True] * 6),
        ((0, 20, 40), 1, [False] * 3),
        ((9, 10, 11, 12, 13, 30), 1, [True, True, True, False, False, False]),
        ((9, 10, 20, 21, 30, 31), 1, [True] * 6),
    ],
    ids=["now-and-then", "in-batches", "every-step", "of-a-gan", "rollout", "later-teacher", "twice-running"],
)
def test_a_place(calls: tuple[int, ...], optimizers: int, evaluates: list[bool]) -> None:
    assert passed(*calls, optimizers=optimizers) == evaluates


def test_what_precedes_the_first_step_of_another_optimizer_is_training() -> None:
    """The first trains a teacher and is tested every ten steps; the outputs of the teacher train the second model."""
    places = EvaluationPlaces()
    assert places.evaluates(HERE, 10, 1)
    assert places.evaluates(HERE, 20, 1)
    assert places.evaluates(THERE, 20, 1), "not known yet"
    places.optimizer_added(21)
    assert not places.evaluates(THERE, 21, 2)
    assert places.evaluates(HERE, 30, 2)
