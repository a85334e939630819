"""Telling evaluations from training by where gradients are disabled."""

from __future__ import annotations

import sys
from collections import deque
from weakref import ref

import pytest

from tuner_tui.observer.site._tuner_observer.counters.batch_stats import IteratorStats
from tuner_tui.observer.site._tuner_observer.counters.evaluation import EvaluationSites, StepGapClassifier, covered_s

HERE, THERE = ("here", 1), ("there", 2)


def passed(*calls: int, optimizers: int = 1) -> list[bool]:
    """What one place is taken for after so many steps."""
    evaluation_sites = EvaluationSites()
    return [evaluation_sites.evaluates(HERE, call, optimizers) for call in calls]


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


@pytest.mark.parametrize(
    ("function", "evaluates"),
    [("estimate_loss", True), ("run_test", True), ("estimate_returns_and_advantages", False), ("rollout", False)],
)
def test_a_place_that_is_passed_before_the_first_step_evaluates_by_its_name(function: str, evaluates: bool) -> None:
    site = (compile("", "", "exec").replace(co_name=function), -1)
    evaluation_sites = EvaluationSites()
    assert not evaluation_sites.evaluates(site, 0, 1)
    assert evaluation_sites.evaluates(site, 40, 1) is evaluates


def test_what_precedes_the_first_step_of_another_optimizer_is_training() -> None:
    """The first trains a teacher and is tested every ten steps; the outputs of the teacher train the second model."""
    evaluation_sites = EvaluationSites()
    assert evaluation_sites.evaluates(HERE, 10, 1)
    assert evaluation_sites.evaluates(HERE, 20, 1)
    assert evaluation_sites.evaluates(THERE, 20, 1), "not known yet"
    evaluation_sites.optimizer_added(21, None)
    assert not evaluation_sites.evaluates(THERE, 21, 2)
    assert evaluation_sites.evaluates(HERE, 30, 2)


def test_other_places_of_a_function_of_rollouts_are_training() -> None:
    """The values of an episode that was cut off are first computed late; a loop holds places of both kinds."""
    rollouts, loop = (compile("", "", "exec").replace(co_name=name) for name in ("collect", "main"))
    frame = sys._getframe()
    evaluation_sites = EvaluationSites()
    for site in ((rollouts, 1), (frame.f_code, 1)):
        assert not evaluation_sites.evaluates(site, 0, 1)
    evaluation_sites.optimizer_added(1, frame)
    assert not evaluation_sites.evaluates((rollouts, 2), 500, 1)
    assert evaluation_sites.evaluates((frame.f_code, 2), 500, 1)
    assert evaluation_sites.evaluates((loop, 1), 500, 1)


Span = tuple[float, float]


def iterator(
    first_s: float, last_s: float, batches: int = 1, stepped: bool = False, exhausted: bool = False
) -> IteratorStats:
    """An iterator that delivered so many batches between these times since the last step."""
    made = IteratorStats()
    made.first_s, made.last_s, made.batches = first_s, last_s, batches
    made.has_trained, made.exhausted = stepped, exhausted
    return made


def classify(
    pending: list[IteratorStats], *silent: Span, between: StepGapClassifier | None = None
) -> tuple[list[IteratorStats], list[Span]]:
    """The step at 100 s."""
    return (between or StepGapClassifier()).classify(pending, deque(silent), 100.0)


@pytest.mark.parametrize(
    ("second_loader", "silent", "evaluated"),
    [
        (iterator(10, 40, 9), (), (10, 50)),
        (iterator(10, 20, 2), ((12, 14),), (10, 50)),
        (iterator(10, 20, 2, exhausted=True), (), (10, 50)),
        (iterator(60, 90, 9), (), (60, 90)),
        (iterator(60, 80, 2), ((62, 64), (81, 85)), (60, 85)),
        (iterator(10, 20, 2), (), None),
        (iterator(10, 20, 9, stepped=True), (), None),
        (iterator(45, 55, 9), (), None),
    ],
    ids=["many", "silent", "whole", "after-the-batch", "after-and-silent", "few", "stepped-before", "in-turns"],
)
def test_a_block_of_batches_of_another_loader(
    second_loader: IteratorStats, silent: tuple[Span, ...], evaluated: Span | None
) -> None:
    evaluations, spans = classify([second_loader, iterator(50, 51, stepped=True)], *silent)
    assert evaluations == ([] if evaluated is None else [second_loader])
    assert spans == ([] if evaluated is None else [evaluated])


def test_at_the_start_of_an_epoch_the_newest_batch_is_the_trainings() -> None:
    broken_off, train = iterator(10, 40, 9), iterator(50, 51)
    assert classify([broken_off, train])[0] == [broken_off]


def test_a_loader_that_delivers_step_after_step_is_the_trainings() -> None:
    between, second_loader = StepGapClassifier(), iterator(10, 40, 9)
    assert classify([second_loader, iterator(50, 51, stepped=True)], between=between)[0] == [second_loader]
    assert classify([second_loader, iterator(50, 51, stepped=True)], between=between)[0] == []


def test_one_that_delivers_now_and_then_is_not() -> None:
    between, second_loader = StepGapClassifier(), iterator(10, 40, 9)
    for _ in range(3):
        assert classify([second_loader, iterator(50, 51, stepped=True)], between=between)[0] == [second_loader]
        between.skipped = True


def test_micro_batches_left_over_from_an_epoch_are_in_the_first_step_of_the_next() -> None:
    rest, following = iterator(40, 45, 2, stepped=True), iterator(50, 60, 4)
    assert classify([rest, following])[0] == [following], "of another loader they are an evaluation's"
    rest.loader = following.loader = ref(test_overlaps_count_once)
    assert classify([rest, following])[0] == []
    assert classify([rest, following], (51, 59))[0] == [following]


def test_without_a_loader_nothing_is_classified() -> None:
    assert classify([], (10, 40)) == ([], [])


def test_stretches_of_the_next_step_are_left_to_it() -> None:
    silent: deque[Span] = deque([(60.0, 70.0), (101.0, 105.0)])
    StepGapClassifier().classify([iterator(50, 51, stepped=True)], silent, 100.0)
    assert list(silent) == [(101.0, 105.0)]


def test_overlaps_count_once() -> None:
    assert covered_s([(0, 4), (2, 6), (8, 20)], 1, 10) == 7
