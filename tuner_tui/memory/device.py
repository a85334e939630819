"""What the training computes on, as far as memory depends on it."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20
CONTEXT_BYTES = 500 * MIB
"""CUDA's context with the kernels of torch and cuBLAS; assumed, not measured: commonly reported as 300–600 MB."""
CPU_CONTEXT_BYTES = 535 * MIB
CPU_CONTEXT_DOUBT_BYTES = 85 * MIB
"""Resident size of a Python that has imported torch and transformers, beside its tensors: 450 MiB after the imports,
up to 620 MiB in a training; measured with torch 2.13 (CPU build)."""
FLASH_LEAST = (8, 0)


@dataclass(frozen=True, slots=True)
class Device:
    """A card, or the processor. `capacity_bytes` is what it has for this training; None where that is not known."""

    on_gpu: bool
    capability: tuple[int, int] | None = None
    capacity_bytes: int | None = None

    @property
    def flash(self) -> bool:
        """Whether torch's flash attention runs here, in 16 bit."""
        return self.on_gpu and self.capability is not None and self.capability >= FLASH_LEAST

    @property
    def context_bytes(self) -> int:
        """What the process takes before the first tensor."""
        return CONTEXT_BYTES if self.on_gpu else CPU_CONTEXT_BYTES

    @property
    def context_doubt_bytes(self) -> int:
        """By how much that may be more or less, beside an estimate's own doubt."""
        return 0 if self.on_gpu else CPU_CONTEXT_DOUBT_BYTES
