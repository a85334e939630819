"""Whose turn it is, as a table: first come, first served."""

from __future__ import annotations

import pytest

from tuner_tui.runs.queue.turns import Applicant, GpuOccupancy, Turn, take_turns

A, B, C = (GpuOccupancy(f"GPU-{name}", f"GPU {index}") for index, name in enumerate("abc"))
ALL = (A.uuid, B.uuid, C.uuid)


def taken(gpu: GpuOccupancy, holder: str) -> GpuOccupancy:
    return GpuOccupancy(gpu.uuid, gpu.label, holder)


def applicant(run: str, gpus: int = 1, allowed: tuple[str, ...] = ALL, hindrance: str | None = None) -> Applicant:
    return Applicant(run, gpus, allowed, hindrance)


@pytest.mark.parametrize(
    ("applicants", "gpus", "starts"),
    [
        ([applicant("r1")], [A, B], {"r1": (A.uuid,)}),
        ([applicant("r1"), applicant("r2"), applicant("r3")], [A, B], {"r1": (A.uuid,), "r2": (B.uuid,)}),
        ([applicant("r1"), applicant("r2")], [taken(A, "alice: python train.py"), B], {"r1": (B.uuid,)}),
        ([applicant("r1", 2)], [A, B, C], {"r1": (A.uuid, B.uuid)}),
        # A run that needs two keeps the one that is free: no later run takes it.
        ([applicant("r1", 2), applicant("r2")], [taken(A, "run r0"), B], {}),
        # One that may use other GPUs, or waits for another run, keeps none.
        ([applicant("r1", 1, (A.uuid,)), applicant("r2")], [taken(A, "run r0"), B], {"r2": (B.uuid,)}),
        ([applicant("r1", hindrance="It starts after run r0 has ended."), applicant("r2")], [A], {"r2": (A.uuid,)}),
        ([applicant("r1", 1, (B.uuid,))], [A], {}),
        ([applicant("r1", 0), applicant("r2"), applicant("r3", 0)], [A], {"r1": (), "r2": (A.uuid,)}),
        ([], [A], {}),
    ],
)
def test_who_starts_and_on_what(
    applicants: list[Applicant], gpus: list[GpuOccupancy], starts: dict[str, tuple[str, ...]]
) -> None:
    turns = take_turns(applicants, gpus)
    assert {turn.run: turn.gpu_uuids for turn in turns if turn.gpu_uuids is not None} == starts
    assert [turn.run for turn in turns] == [applicant.run for applicant in applicants]
    assert all((turn.gpu_uuids is None) == bool(turn.reason) for turn in turns)


@pytest.mark.parametrize(
    ("applicants", "gpus", "reason"),
    [
        ([applicant("r1", 2)], [taken(A, "alice: python train.py"), B],
         "It needs 2 GPUs, 1 free. GPU 0: alice: python train.py."),
        ([applicant("r1"), applicant("r2")], [A], "It needs 1 GPU, 0 free. GPU 0: run r1 is before it."),
        ([applicant("r1", 2)], [taken(A, "lost")], "It needs 2 GPUs, of which 1 are visible now."),
        ([applicant("r1", 0), applicant("r2", 0)], [], "The CPU is taken by run r1."),
    ],
)  # fmt: skip
def test_the_last_one_waits_and_says_why(applicants: list[Applicant], gpus: list[GpuOccupancy], reason: str) -> None:
    assert take_turns(applicants, gpus)[-1] == Turn(applicants[-1].run, None, reason)


def test_many_holders_are_counted() -> None:
    gpus = [GpuOccupancy(f"GPU-{index}", f"GPU {index}", "run r0") for index in range(8)]
    (turn,) = take_turns([applicant("r1", 1, tuple(gpu.uuid for gpu in gpus))], gpus)
    assert turn.reason.endswith("GPU 2: run r0; 5 more are taken.")


def test_a_run_on_the_processor_waits_for_the_one_that_has_it() -> None:
    (turn,) = take_turns([applicant("r2", 0)], [], "run r1")
    assert turn.gpu_uuids is None
    assert "run r1" in turn.reason
