"""Stop escalation with a fake clock."""

from __future__ import annotations

from signal import SIGKILL, SIGTERM, Signals

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


@pytest.mark.parametrize(
    ("order", "looks"),
    [
        ("stop", [(observed(59.0), None), (observed(61.0), SIGTERM)]),
        ("stop", [(observed(100.0, step_time_s=40.0), None), (observed(201.0, step_time_s=40.0), SIGTERM)]),
        ("stop", [(EscalationInput(299.0, True, evaluating=True), None), (observed(61.0), SIGTERM)]),
        ("stop", [(EscalationInput(301.0, True, evaluating=True), SIGTERM)]),
        ("stop", [(unobserved(0.0), SIGTERM)]),
        ("stop", [(observed(299.0, saving_since=0.0), None), (observed(301.0, saving_since=0.0), SIGTERM)]),
        ("terminate", [(observed(299.0, saving_since=0.0), None), (observed(301.0, saving_since=0.0), SIGTERM)]),
        ("kill", [(observed(0.0), SIGTERM), (observed(9.0), None), (observed(10.0), SIGKILL), (observed(99.0), None)]),
        ("kill", [(observed(0.0, 0.0), SIGTERM), (observed(9.0, 5.0), None), (observed(10.0, 5.0), SIGKILL)]),
    ],
)
def test_when_a_signal_is_due(order: Order, looks: list[tuple[EscalationInput, Signals | None]]) -> None:
    made = ladder(order)
    assert [made.due(situation) for situation, _ in looks] == [due for _, due in looks]


@pytest.mark.parametrize("order", ["stop", "terminate"])
def test_sigterm_once_and_never_sigkill_unordered(order: Order) -> None:
    made = ladder(order)
    assert made.due(unobserved(0.0)) is SIGTERM
    assert [made.due(unobserved(float(now))) for now in range(1, 10_000, 7)] == [None] * 1429


def test_a_later_kill_counts_its_grace_from_the_order() -> None:
    made = ladder("terminate")
    assert made.due(unobserved(0.0)) is SIGTERM
    assert made.request("kill", 100.0)
    assert made.due(unobserved(105.0)) is None
    assert made.due(unobserved(110.0)) is SIGKILL


def test_a_softer_order_changes_nothing() -> None:
    assert not StopEscalation(PATIENCE).request("checkpoint", 0.0)
    made = ladder("terminate")
    assert not made.request("stop", 1.0)
    assert not made.request("terminate", 1.0)
    assert made.order == "terminate"
