"""Stop escalation with a fake clock."""

from __future__ import annotations

from signal import SIGKILL, SIGTERM

import pytest

from tuner_tui.runs.store.supervisor_state import Order
from tuner_tui.runs.supervise.training_process import EscalationInput, StopEscalation, StopTimeouts

PATIENCE = StopTimeouts(stop_s=60.0, kill_s=10.0, saving_s=300.0)


def ladder(order: Order, now: float = 0.0) -> StopEscalation:
    made = StopEscalation(PATIENCE)
    assert made.request(order, now)
    return made


def observed(now: float, saving_since: float | None = None, step_time_s: float | None = None) -> EscalationInput:
    return EscalationInput(now, True, saving_since, step_time_s)


def unobserved(now: float) -> EscalationInput:
    return EscalationInput(now, False)


def test_nothing_without_an_order() -> None:
    made = StopEscalation(PATIENCE)
    assert not made.request("checkpoint", 0.0)
    assert made.due(unobserved(1e9)) is None
    assert made.order is None


def test_an_observed_training_gets_its_grace() -> None:
    made = ladder("stop")
    assert made.due(observed(59.0)) is None
    assert made.due(observed(61.0)) is SIGTERM


def test_slow_steps_get_five_of_them() -> None:
    made = ladder("stop")
    assert made.due(observed(100.0, step_time_s=40.0)) is None
    assert made.due(observed(201.0, step_time_s=40.0)) is SIGTERM


def test_an_evaluation_may_come_to_its_end_first() -> None:
    made = ladder("stop")
    assert made.due(EscalationInput(299.0, True, evaluating=True)) is None
    assert made.due(EscalationInput(61.0, True)) is SIGTERM
    assert ladder("stop").due(EscalationInput(301.0, True, evaluating=True)) is SIGTERM


def test_an_unobserved_training_gets_sigterm_at_once() -> None:
    assert ladder("stop").due(unobserved(0.0)) is SIGTERM


@pytest.mark.parametrize("order", ["stop", "terminate"])
def test_sigterm_once_and_never_sigkill_unordered(order: Order) -> None:
    made = ladder(order)
    assert made.due(unobserved(0.0)) is SIGTERM
    assert [made.due(unobserved(float(now))) for now in range(1, 10_000, 7)] == [None] * 1429


def test_sigkill_after_the_grace_and_once() -> None:
    made = ladder("kill")
    assert made.due(observed(0.0)) is SIGTERM
    assert made.due(observed(9.0)) is None
    assert made.due(observed(10.0)) is SIGKILL
    assert made.due(observed(99.0)) is None


def test_a_later_kill_counts_its_grace_from_the_order() -> None:
    made = ladder("terminate")
    assert made.due(unobserved(0.0)) is SIGTERM
    assert made.request("kill", 100.0)
    assert made.due(unobserved(105.0)) is None
    assert made.due(unobserved(110.0)) is SIGKILL


@pytest.mark.parametrize("order", ["stop", "terminate"])
def test_nothing_while_a_checkpoint_is_written(order: Order) -> None:
    made = ladder(order)
    assert made.due(observed(299.0, saving_since=0.0)) is None
    assert made.due(observed(301.0, saving_since=0.0)) is SIGTERM


def test_a_kill_waits_for_no_checkpoint() -> None:
    """`stop --now`: SIGTERM at once, SIGKILL ten seconds later."""
    made = ladder("kill")
    assert made.due(observed(0.0, saving_since=0.0)) is SIGTERM
    assert made.due(observed(9.0, saving_since=5.0)) is None
    assert made.due(observed(10.0, saving_since=5.0)) is SIGKILL


def test_a_softer_order_changes_nothing() -> None:
    made = ladder("terminate")
    assert not made.request("stop", 1.0)
    assert not made.request("terminate", 1.0)
    assert made.order == "terminate"
