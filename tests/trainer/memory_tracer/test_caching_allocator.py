"""What the replayed allocator reserves, against hand calculation and the rules of PyTorch's allocator."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner_tui.trainer.memory_tracer.caching_allocator import BLOCK_BYTES, FREED, MIB, Event, Pool, replay


def allocated(*sizes: int) -> list[Event]:
    return list(enumerate(sizes))


@pytest.mark.parametrize(
    ("sizes", "reserved"),
    [
        ([1], 2 * MIB),
        ([0], 2 * MIB),
        ([513, 512], 2 * MIB),
        ([MIB, MIB], 2 * MIB),
        ([MIB, MIB, 1], 4 * MIB),
        ([MIB + 1], 20 * MIB),
        ([8 * MIB, 8 * MIB], 20 * MIB),
        ([8 * MIB, 8 * MIB, 8 * MIB], 40 * MIB),
        # a rest of at most 1 MiB stays with the block: 20 − 19.5, with a segment of 20 MiB for 19.5
        ([19 * MIB + MIB // 2], 20 * MIB),
        ([10 * MIB - 512], 20 * MIB),
        ([10 * MIB], 10 * MIB),
        ([11 * MIB], 12 * MIB),  # the rest of 1 MiB is not split off
        ([101 * MIB + 1], 102 * MIB),
    ],
)
def test_segments_of_requests_into_an_empty_allocator(sizes: Sequence[int], reserved: int) -> None:
    assert replay(allocated(*sizes)) == (sum(sizes), reserved)


def test_the_smallest_block_that_fits_is_used_again() -> None:
    """Free: 30, 14, 40 MiB. 12 MiB come from 14, of which 2 stay free; 2 of them serve the next 2 MiB."""
    events = [*allocated(30 * MIB, 14 * MIB, 40 * MIB), (0, FREED), (1, FREED), (2, FREED)]
    assert replay([*events, (3, 12 * MIB), (4, 2 * MIB)]).reserved == 84 * MIB
    assert replay([*events, (3, 12 * MIB), (4, 2 * MIB), (5, 40 * MIB), (6, 30 * MIB)]).reserved == 84 * MIB
    assert replay([*events, (3, 15 * MIB), (5, 40 * MIB), (6, 30 * MIB)]).reserved == 114 * MIB


def test_of_equal_blocks_the_lowest_address_is_used() -> None:
    pool = Pool(small=False, expandable=False)
    blocks = [pool.allocate(12 * MIB) for _ in range(3)]
    for block in reversed(blocks):
        pool.release(*block)
    assert pool.allocate(12 * MIB) == blocks[0]


def test_free_neighbours_are_merged_and_others_not() -> None:
    """Two of three blocks of 6 MiB in 20 MiB make room for 12 MiB if they touch."""
    three = allocated(6 * MIB, 6 * MIB, 6 * MIB)
    assert replay([*three, (0, FREED), (1, FREED), (3, 12 * MIB)]).reserved == 20 * MIB
    assert replay([*three, (0, FREED), (2, FREED), (3, 12 * MIB)]).reserved == 32 * MIB  # 6 and 2 + 6


def test_small_and_large_requests_do_not_share_segments() -> None:
    assert replay([(0, 20 * MIB), (0, FREED), (1, 512)]).reserved == 22 * MIB
    assert replay([(0, 512), (0, FREED), (1, 2 * MIB)]).reserved == 22 * MIB


@pytest.mark.parametrize(
    ("events", "reserved"),
    [
        ([(0, 512)], 2),
        ([(0, 3 * MIB)], 20),
        ([(0, 30 * MIB)], 40),
        # 15 of the 20 MiB are taken: 30 more need 25 beyond the free 5, two pages of 20
        ([(0, 15 * MIB), (1, 30 * MIB)], 60),
        # the freed 15 MiB in front are too small, the 15 free ones at the end grow
        ([(0, 15 * MIB), (1, 30 * MIB), (0, FREED), (2, 16 * MIB)], 80),
        ([(0, 15 * MIB), (1, 30 * MIB), (0, FREED), (2, 15 * MIB)], 60),
        # without expandable segments a larger batch never fits into what a smaller one left
        ([(0, 100 * MIB), (0, FREED), (1, 120 * MIB), (1, FREED), (2, 140 * MIB)], 140),
    ],
)
def test_an_expandable_segment_grows_by_pages(events: Sequence[Event], reserved: int) -> None:
    assert replay(events, expandable_segments=True).reserved == reserved * MIB


def test_the_end_of_an_expandable_segment_is_used_last() -> None:
    """Of free blocks of 10 MiB at the end and of 12 in front, the one in front serves 9 MiB."""
    pool = Pool(small=False, expandable=True)
    front, middle = pool.allocate(12 * MIB), pool.allocate(18 * MIB)  # 40 MiB mapped, 10 free
    pool.release(*front)
    assert (front[0], middle[0]) == (0, 12 * MIB)
    assert pool.allocate(9 * MIB)[0] == 0


SIZES = st.one_of(
    st.integers(0, 4096), st.integers(0, 3 * MIB), st.integers(MIB, 12 * MIB), st.integers(10 * MIB, 80 * MIB)
)


@st.composite
def traces(draw: st.DrawFn) -> list[Event]:
    """Allocations, and frees of any of those that live."""
    events: list[Event] = []
    live: list[int] = []
    for name, size in enumerate(draw(st.lists(SIZES, max_size=60))):
        events.append((name, size))
        live.append(name)
        count = draw(st.integers(0, min(2, len(live))))
        events.extend((live.pop(draw(st.integers(0, len(live) - 1))), FREED) for _ in range(count))
    return events


@given(traces(), st.booleans(), st.booleans())
def test_blocks_fill_their_segments_without_overlap(events: list[Event], small: bool, expandable: bool) -> None:
    pool, live = Pool(small, expandable), dict[int, tuple[int, int]]()
    for name, size in events:
        if size == FREED:
            pool.release(*live.pop(name))
            continue
        requested = min(max(1, -(-size // BLOCK_BYTES)) * BLOCK_BYTES, MIB if small else size + BLOCK_BYTES)
        live[name] = pool.allocate(requested)
        assert live[name][1] >= requested
    blocks = sorted([*((*block, False) for block in live.values()), *((at, size, True) for size, at in pool.free)])
    assert sum(size for _, size, _ in blocks) == pool.reserved
    assert all(size % BLOCK_BYTES == 0 for _, size, _ in blocks)
    for (address, size, free), (following, _, also_free) in pairwise(blocks):
        assert address + size <= following
        assert not (free and also_free and address + size == following)  # free neighbours are merged
    for block in live.values():
        pool.release(*block)
    assert sum(size for size, _ in pool.free) == pool.reserved
    assert not expandable or len(pool.free) <= 1


@given(traces(), st.booleans())
def test_the_same_trace_reserves_the_same(events: list[Event], expandable: bool) -> None:
    peak = replay(events, expandable)
    assert peak == replay(events, expandable)
    assert peak.requested <= peak.reserved
