"""Which rank is named, and when the answer is that nothing was reproduced."""

from __future__ import annotations

import pytest

from tuner_tui.inspection.first_non_finite import Operation, ReplayReport, TensorRange, judge_replay
from tuner_tui.inspection.suspect_batches import StepBatch

RANGE = TensorRange("float32", (4, 8), (), -3.0, 5.0)
HALF = TensorRange("float16", (), (), -6e4, 6e4)
LOG = Operation("forward", "head", "aten.log", (RANGE,), TensorRange("float32", (4, 8), ("-inf",), others=2))


def steps(*losses: float) -> list[StepBatch]:
    """Steps with these losses, of a row each."""
    return [StepBatch(at + 1, losses=(loss,), rows=((10 + at,),)) for at, loss in enumerate(losses)]


def test_the_rank_where_it_began_is_named() -> None:
    received = Operation("update", None, "aten.copy_", entered="data")
    reports = [ReplayReport(0, 3, "", received), ReplayReport(1, 3, "the loss is nan", LOG)]
    replay = judge_replay(3, 0, reports, steps(2.0, 1.0), steps(2.0, 1.001))
    assert replay.sentence == (
        "In step 3 of rank 1, first not finite: head, forward, aten.log: inputs -3 to 5 in float32, "
        "result 2 of 32 -inf in float32."
    )
    assert replay.facts == ("2 losses since the start are those of the run", "the loss is nan")
    assert replay.role == "undefined"


def test_a_batch_that_is_not_finite_is_the_answer() -> None:
    values = TensorRange("float32", (32, 64), ("nan",), -3.5, 3.8, others=64)
    entered = Operation("forward", "head", "aten.addmm", (RANGE, values), values, entered="data")
    assert judge_replay(3, 0, [ReplayReport(0, 3, "", entered)], [], []).sentence == (
        "In step 3, the batch itself is not finite: -3.5 to 3.8, 64 of 2,048 nan in float32; "
        "it enters head, forward, aten.addmm."
    )


def test_the_rows_are_those_of_the_run() -> None:
    replay = judge_replay(3, 0, [ReplayReport(0, 3, "", LOG)], steps(2.0, 1.0, float("nan")), steps(2.0, 1.0))
    assert replay.rows == (12,)


def test_other_losses_are_not_reproduced() -> None:
    replay = judge_replay(4, 0, [ReplayReport(0, 4, "", LOG)], steps(2.0, 1.0, 0.9), steps(2.0, 1.2, 0.7))
    assert replay.sentence == "Not reproduced: the losses differ from step 2 on (1, in the replay 1.2)."
    assert replay.role is None
    assert "only with a fixed seed" in replay.facts[0]


@pytest.mark.parametrize(
    ("reports", "sentence"),
    [
        ([ReplayReport(0, 5)], "Not reproduced: all values are finite in the replay up to step 5."),
        ([], "Unknown: no rank of the replay checked the steps."),
    ],
)
def test_nothing_found(reports: list[ReplayReport], sentence: str) -> None:
    assert judge_replay(4, 2, reports, [], []).sentence == sentence


@pytest.mark.parametrize(
    ("operation", "role"),
    [
        (Operation("forward", "a", "aten.mm", (HALF,), TensorRange("float16", (), ("inf",))), "overflow"),
        (Operation("forward", None, "aten.pow", (TensorRange("float32", (), (), 0.0, 3e20),)), "exploding"),
        (Operation("forward", "a", "aten.mm", entered="a.weight"), "exploding"),
        (Operation("forward", "a", "aten.mm", entered="data"), "rows"),
        (Operation("backward", "a", "aten.mul", node="SqrtBackward0"), "undefined"),
        (Operation("update", "a.weight", "SGD.step"), "exploding"),
        (Operation("forward", "a", "aten.add", (RANGE,)), None),
    ],
)  # fmt: skip
def test_the_kind_of_cause(operation: Operation, role: str | None) -> None:
    assert operation.role == role
