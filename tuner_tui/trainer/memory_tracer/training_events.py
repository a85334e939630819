"""The allocations of a training in order, put together from the traced parts of a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise

from .caching_allocator import FREED, Event, replay

STEPS = 3
"""The first makes the optimizer states in the gaps that its activations leave; after the third little changes."""
CUBLAS_WORKSPACE_BYTES = 8_519_680
"""Of cuBLAS, for each of the two threads that compute forward and backward; 32 MiB on GPUs of compute capability 9.0
(aten/src/ATen/cuda/CublasHandlePool.cpp: parseChosenWorkspaceSize)."""


@dataclass(frozen=True, slots=True)
class LiveBytes:
    """What all tensors take, and the gradients and the 16-bit copies of weights among them."""

    total: int = 0
    gradients: int = 0
    copies: int = 0


@dataclass(frozen=True, slots=True)
class FixedEvents:
    """Events that do not depend on the batch: of weights, of the first update that makes states, of a later one."""

    weights: Sequence[Event]
    first_update: Sequence[Event]
    update: Sequence[Event]


@dataclass(frozen=True, slots=True)
class BatchEvents:
    """Events of forward and backward, and of `zero_grad` after it.

    `gradients` are the names of what a later micro batch adds to gradients that exist; empty without accumulation.
    """

    passes: Sequence[Event]
    zero_grad: Sequence[Event] = ()
    gradients: frozenset[int] = frozenset()
    live: Sequence[LiveBytes] = (LiveBytes(),)
    """Before the first of `passes`, and after each allocation in them."""

    @property
    def peak(self) -> LiveBytes:
        return max(self.live, key=lambda moment: moment.total)


def training_events(fixed: FixedEvents, batch: BatchEvents) -> Iterator[Event]:
    """The events of a training of `STEPS` steps, with two micro batches each where gradients are accumulated."""
    names = count()
    yield from _renamed(fixed.weights, names, {})
    workspaces = [(-1, CUBLAS_WORKSPACE_BYTES), (-2, CUBLAS_WORKSPACE_BYTES)]
    yield from _renamed(workspaces, names, {})
    update = fixed.first_update
    # Traces of one step have the same names each time. They are renamed step by step, as the allocator must see that
    # the gradients of a step outlive its activations and are freed by `zero_grad`.
    for _ in range(STEPS):
        live: dict[int, int] = {}
        first = [event for event in batch.passes if event[1] != FREED or event[0] not in batch.gradients]
        yield from _renamed(first, names, live)
        if batch.gradients:
            yield from _renamed(batch.passes, names, {})
        yield from _renamed(update, names, {})
        yield from _renamed([*batch.zero_grad, *((name, FREED) for name in batch.gradients)], names, live)
        update = fixed.update


def allocator_slack(
    fixed: FixedEvents, traced: Mapping[int, BatchEvents], batches: Iterable[int], expandable_segments: bool
) -> list[tuple[int, int]]:
    """For each of `batches`, the bytes that the allocator reserves above the peak of all tensors.

    How activations of other sizes fit into each other changes from batch to batch, but their order does not: sizes
    between two traced batches lie on a straight line. Without such a pair only traced batches are replayed.
    """
    slack = []
    for batch in batches:
        events = events_at(traced, batch)
        if events is not None:
            peak = replay(training_events(fixed, events), expandable_segments)
            slack.append((batch, peak.reserved - peak.requested + 2 * CUBLAS_WORKSPACE_BYTES))
    return slack


def events_at(traced: Mapping[int, BatchEvents], batch: int) -> BatchEvents | None:
    """The events at any batch, from those of two that were traced; None where these do not have the same order."""
    if batch in traced:
        return traced[batch]
    pairs = list(pairwise(sorted(traced)))
    if not pairs:
        return None
    low, high = next((pair for pair in pairs if batch < pair[1]), pairs[-1])
    first, last = traced[low], traced[high]
    # Sizes of activations are linear in the batch, as is a sum of them. If two traces have the same events in the same
    # order, every size at a third batch lies on the line through the two; no third trace is needed. Kernels that are
    # chosen by size change the order, and then nothing is inferred.
    if _order(first) != _order(last):
        return None

    def scaled(size: int, larger: int) -> int:
        return max(0, size + (larger - size) * (batch - low) // (high - low))

    passes = [
        (name, FREED if size == FREED else scaled(size, larger))
        for (name, size), (_, larger) in zip(first.passes, last.passes, strict=True)
    ]
    live = [
        replace(smaller, total=scaled(smaller.total, larger.total))
        for smaller, larger in zip(first.live, last.live, strict=True)
    ]
    return BatchEvents(passes, first.zero_grad, first.gradients, live)


def _order(events: BatchEvents) -> tuple[object, ...]:
    """What does not depend on the batch."""
    names = [(name, size == FREED) for name, size in events.passes]
    return names, [(moment.gradients, moment.copies) for moment in events.live]


def _renamed(events: Iterable[Event], names: Iterator[int], live: dict[int, int]) -> Iterator[Event]:
    """The events under new names, which `live` has by old name. Frees of what it has not are left out."""
    for name, size in events:
        if size != FREED:
            live[name] = next(names)
            yield live[name], size
        elif name in live:
            yield live.pop(name), FREED
