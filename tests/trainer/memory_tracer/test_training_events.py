"""The order of allocations in a training, put together from its parts."""

from __future__ import annotations

from tuner_tui.trainer.memory_tracer.caching_allocator import FREED, MIB, Event, replay
from tuner_tui.trainer.memory_tracer.training_events import (
    CUBLAS_WORKSPACE_BYTES,
    STEPS,
    BatchEvents,
    FixedEvents,
    allocator_slack,
    training_events,
)

WEIGHT, STATE, ACTIVATION, GRADIENT = 64 * MIB, 48 * MIB, 32 * MIB, 16 * MIB
FIXED = FixedEvents(weights=[(0, WEIGHT)], first_update=[(0, STATE)], update=[(0, 2 * MIB), (0, FREED)])
PASSES: list[Event] = [(0, ACTIVATION), (1, GRADIENT), (0, FREED)]


def live_bytes(events: list[Event]) -> list[int]:
    """The bytes of live tensors after each event. Fails where a name is freed that does not live."""
    live: dict[int, int] = {}
    totals = []
    for name, size in events:
        if size == FREED:
            del live[name]
        else:
            assert name not in live
            live[name] = size
        totals.append(sum(live.values()))
    return totals


def test_gradients_live_until_they_are_set_to_none_and_states_from_the_first_update() -> None:
    totals = live_bytes(list(training_events(FIXED, BatchEvents(PASSES, [(1, FREED)]))))
    fixed = WEIGHT + 2 * CUBLAS_WORKSPACE_BYTES
    assert max(totals[:6]) == fixed + ACTIVATION + GRADIENT
    assert max(totals) == fixed + STATE + ACTIVATION + GRADIENT
    assert totals[-1] == fixed + STATE


def test_the_states_take_the_place_of_the_activations_of_the_first_step() -> None:
    """64, 20 and 32 + 16 MiB are reserved when the states of 48 MiB come, for which no free block is large enough;
    the second step finds its blocks."""
    assert replay(training_events(FIXED, BatchEvents(PASSES, [(1, FREED)]))).reserved == (64 + 20 + 32 + 16 + 48) * MIB
    small = FixedEvents(FIXED.weights, [(0, ACTIVATION)], FIXED.update)
    assert replay(training_events(small, BatchEvents(PASSES, [(1, FREED)]))).reserved == (64 + 20 + 32 + 16 + 32) * MIB


def test_an_earlier_micro_batch_leaves_the_gradients_that_a_later_one_adds_to() -> None:
    """The trace of a later micro batch frees its gradient after adding it."""
    later = BatchEvents([*PASSES, (1, FREED)], [], frozenset({1}))
    events = list(training_events(FIXED, later))
    totals = live_bytes(events)
    fixed = WEIGHT + 2 * CUBLAS_WORKSPACE_BYTES
    assert max(totals) == fixed + STATE + GRADIENT + ACTIVATION + GRADIENT
    assert totals[-1] == fixed + STATE
    assert sum(size == ACTIVATION for _, size in events) == 2 * STEPS


def test_sizes_between_two_traced_batches_lie_on_a_line() -> None:
    """At 4 samples 48 of 32 and 64 MiB: 64 of weights, 20 of cuBLAS, 48 of activations, 16 of gradients, and states of
    48 in the place of the first activations, which need 48 more. The tensors are 64 + 48 + 48 + 16."""
    larger: list[Event] = [(0, 2 * ACTIVATION), *PASSES[1:]]
    traced = {2: BatchEvents(PASSES, [(1, FREED)]), 6: BatchEvents(larger, [(1, FREED)])}
    assert allocator_slack(FIXED, traced, [4], False) == [(4, 20 * MIB)]
    assert [batch for batch, _ in allocator_slack(FIXED, traced, [1, 2, 3, 6, 9], False)] == [1, 2, 3, 6, 9]


def test_of_steps_that_differ_only_traced_batches_are_replayed() -> None:
    traced = {2: BatchEvents(PASSES, [(1, FREED)]), 6: BatchEvents([(3, MIB), (3, FREED), *PASSES], [(1, FREED)])}
    assert [batch for batch, _ in allocator_slack(FIXED, traced, [1, 2, 4, 6, 8], False)] == [2, 6]


def test_of_one_traced_batch_no_other_is_replayed() -> None:
    traced = {2: BatchEvents(PASSES, [(1, FREED)])}
    assert [batch for batch, _ in allocator_slack(FIXED, traced, [1, 2, 4], False)] == [2]
