"""Whose turn it is: first come, first served. Pure: the runs that wait and the GPUs in, who starts and why not out."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

MAX_HOLDERS = 3


class GpuOccupancy(Struct, frozen=True):
    """A GPU. `holder` says who has it, or why it cannot be used; None: it is free."""

    uuid: str
    label: str
    holder: str | None = None


class Applicant(Struct, frozen=True):
    """A waiting run that needs `gpus` of the GPUs `allowed`; 0: the processor. `hindrance` is why it is not ready."""

    run: str
    gpus: int
    allowed: tuple[str, ...] = ()
    hindrance: str | None = None


class Turn(Struct, frozen=True):
    """The run starts on the GPUs `gpu_uuids`, or (None) it waits for `reason`."""

    run: str
    gpu_uuids: tuple[str, ...] | None = None
    reason: str = ""


def take_turns(
    applicants: Sequence[Applicant], gpus: Sequence[GpuOccupancy], processor: str | None = None
) -> list[Turn]:
    """Decide about the runs in their order. `processor` says what uses the processor; None: no run does.

    A run that waits for GPUs reserves all that it may use: no later one takes a GPU from it. One that is not ready
    reserves nothing.
    """
    turns = []
    taken: dict[str, str] = {}  # by UUID, the run that is before
    for applicant in applicants:
        if applicant.hindrance is not None:
            turns.append(Turn(applicant.run, None, applicant.hindrance))
            continue
        if not applicant.gpus:
            reason = "" if processor is None else f"The CPU is taken by {processor}."
            turns.append(Turn(applicant.run, () if processor is None else None, reason))
            processor = processor or f"run {applicant.run}"
            continue
        usable = [gpu for gpu in gpus if gpu.uuid in applicant.allowed]
        free = [gpu.uuid for gpu in usable if gpu.holder is None and gpu.uuid not in taken]
        chosen = tuple(free[: applicant.gpus]) if len(free) >= applicant.gpus else None
        turns.append(Turn(applicant.run, chosen, "" if chosen else _shortage(applicant, usable, free, taken)))
        taken |= {uuid: applicant.run for uuid in chosen or applicant.allowed if uuid not in taken}
    return turns


def _shortage(applicant: Applicant, usable: Sequence[GpuOccupancy], free: Sequence[str], taken: dict[str, str]) -> str:
    if len(usable) < applicant.gpus:
        return f"It needs {_gpus(applicant.gpus)}, of which {len(usable)} are visible now."
    holders = [f"{gpu.label}: {gpu.holder}" for gpu in usable if gpu.holder is not None]
    holders += [f"{gpu.label}: run {taken[gpu.uuid]} is before it" for gpu in usable
                if gpu.holder is None and gpu.uuid in taken]  # fmt: skip
    more = f"; {len(holders) - MAX_HOLDERS} more are taken" if len(holders) > MAX_HOLDERS else ""
    return f"It needs {_gpus(applicant.gpus)}, {len(free)} free. {'; '.join(holders[:MAX_HOLDERS])}{more}."


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
