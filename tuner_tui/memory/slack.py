"""What a process takes beyond its tensors: the context, and what the caching allocator holds."""

from __future__ import annotations

from dataclasses import dataclass

from tuner_tui.memory.device import MIB, Device

SLACK_SHARE = 0.03
"""Reserved above allocated at the peak, as a share of the tensors; assumed, not measured on a card."""
CPU_SLACK_SHARE = 0.175
"""What malloc keeps on a CPU of tensors that are gone, as a share of the peak of those that live; measured: 0.17 to
0.20 beside 1.7 and 2.2 GiB of tensors (glibc 2.36)."""
SEGMENT_BYTES = 20 * MIB
"""Blocks of 1 to 10 MiB are cut from segments of this size (c10/cuda/CUDACachingAllocator: kLargeBuffer)."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """Bytes of the context, and of the allocator: a share of the tensors and a part that is always there.

    `context_doubt_bytes` is by how much a context that was not measured may be more or less. `reserved_bytes` is what a
    limit counts beside it although it is never touched, `reserved_doubt_bytes` the doubt of that.
    """

    context_bytes: float
    slack_share: float
    slack_bytes: float
    context_doubt_bytes: float = 0.0
    reserved_bytes: float = 0.0
    reserved_doubt_bytes: float = 0.0

    @property
    def doubt_bytes(self) -> float:
        """By how much all of it may be off."""
        return self.context_doubt_bytes + self.reserved_doubt_bytes

    def slack(self, tensor_bytes: float) -> float:
        """What the allocator holds beyond tensors of so many bytes."""
        return self.slack_share * tensor_bytes + self.slack_bytes


def overhead_of(device: Device) -> Overhead:
    """The overhead on `device`."""
    if not device.on_gpu:
        return Overhead(
            device.context_bytes, CPU_SLACK_SHARE, 0.0,
            device.context_doubt_bytes, device.reserved_bytes, device.reserved_doubt_bytes,
        )  # fmt: skip
    return Overhead(device.context_bytes, SLACK_SHARE, SEGMENT_BYTES, device.context_doubt_bytes)
