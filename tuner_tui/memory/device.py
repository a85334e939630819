"""The device a training computes on, and the memory a process takes on it beside its tensors."""

from __future__ import annotations

from dataclasses import dataclass

from tuner_tui.core.units import MIB

CONTEXT_BYTES = 500 * MIB
"""CUDA's context with the kernels of torch and cuBLAS; assumed, not measured: commonly reported as 300–600 MB."""
IMPORTED_BYTES = 463 * MIB
"""Resident size of a Python that has imported what a job imports; measured with torch 2.13 (CPU build)."""
WORKING_BYTES = 105 * MIB
WORKING_UNCERTAINTY_BYTES = 115 * MIB
"""What a process takes on a CPU from there to its first steps, beside its tensors; 80 to 215 MiB in eight trainings."""
RESERVED_BYTES = 1065 * MIB
RESERVED_UNCERTAINTY_BYTES = 250 * MIB
"""Private memory that the same Python reserves and does not touch, on two cores; every core more reserves some 40 MiB.
Most of it are pools of pyarrow, which `datasets` imports."""
FLASH_MINIMUM_CAPABILITY = (8, 0)


@dataclass(frozen=True, slots=True)
class ImportFootprint:
    """The Python that trains, after its imports: its resident memory, and its private memory (`VmData`), in bytes."""

    resident_bytes: int
    private_bytes: int

    @property
    def reserved_bytes(self) -> int:
        """What it reserved and did not touch."""
        return max(0, self.private_bytes - self.resident_bytes)


@dataclass(frozen=True, slots=True)
class Device:
    """A card, or the processor. `capacity_bytes` is what it has for this training; None where that is not known.

    `limited`: on a processor, the capacity is a memory limit (`RLIMIT_DATA`), which counts private memory whether it
    was touched or not. `started` is the measured beginning of the Python that trains there. `cards` are those that one
    process spreads each batch over (`torch.nn.DataParallel`); this is the first of them, which takes most.
    """

    on_gpu: bool
    capability: tuple[int, int] | None = None
    capacity_bytes: int | None = None
    limited: bool = False
    started: ImportFootprint | None = None
    cards: int = 1

    @property
    def flash(self) -> bool:
        """Whether torch's flash attention runs here, in 16 bit."""
        return self.on_gpu and self.capability is not None and self.capability >= FLASH_MINIMUM_CAPABILITY

    @property
    def context_bytes(self) -> int:
        """What the process takes before the first tensor."""
        if self.on_gpu:
            return CONTEXT_BYTES
        return WORKING_BYTES + (IMPORTED_BYTES if self.started is None else self.started.resident_bytes)

    @property
    def reserved_bytes(self) -> int:
        """What it reserves beside that and a limit counts; 0 where no limit does."""
        if self.on_gpu or not self.limited:
            return 0
        return RESERVED_BYTES if self.started is None else self.started.reserved_bytes

    @property
    def context_doubt_bytes(self) -> int:
        """By how much the context may be more or less, beside an estimate's own doubt."""
        return 0 if self.on_gpu else WORKING_UNCERTAINTY_BYTES

    @property
    def reserved_doubt_bytes(self) -> int:
        """The same of what is reserved; nothing where it was measured."""
        return RESERVED_UNCERTAINTY_BYTES if self.reserved_bytes and self.started is None else 0


SLACK_SHARE = 0.03
"""Reserved above allocated at the peak, as a share of the tensors; assumed, not measured on a card."""
CPU_SLACK_SHARE = 0.175
"""What malloc keeps on a CPU of tensors that are gone, as a share of the peak of those that live; measured: 0.17 to
0.20 beside 1.7 and 2.2 GiB of tensors (glibc 2.36)."""
SEGMENT_BYTES = 20 * MIB
"""Blocks of 1 to 10 MiB are cut from segments of this size (c10/cuda/CUDACachingAllocator: kLargeBuffer)."""


@dataclass(frozen=True, slots=True)
class RuntimeOverhead:
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


def runtime_overhead(device: Device) -> RuntimeOverhead:
    """The overhead on `device`."""
    if not device.on_gpu:
        return RuntimeOverhead(
            device.context_bytes, CPU_SLACK_SHARE, 0.0,
            device.context_doubt_bytes, device.reserved_bytes, device.reserved_doubt_bytes,
        )  # fmt: skip
    return RuntimeOverhead(device.context_bytes, SLACK_SHARE, SEGMENT_BYTES, device.context_doubt_bytes)
