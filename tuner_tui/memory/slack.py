"""What the caching allocator holds beyond the tensors."""

from __future__ import annotations

from tuner_tui.memory.device import MIB

SLACK_SHARE = 0.03
"""Reserved above allocated at the peak, as a share; assumed, not measured on a card."""
SEGMENT_BYTES = 20 * MIB
"""Blocks of 1 to 10 MiB are cut from segments of this size (c10/cuda/CUDACachingAllocator: kLargeBuffer)."""


def slack_bytes(tensor_bytes: float, on_gpu: bool) -> float:
    """Rounding and fragments of CUDA's caching allocator; a CPU's allocator gives back what is freed."""
    return SLACK_SHARE * tensor_bytes + SEGMENT_BYTES if on_gpu else 0.0
