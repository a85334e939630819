"""The device a training computes on, and the memory a process takes on it besides its tensors."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.units import MIB
from tuner_tui.hardware.capabilities import least_capability

CONTEXT_BYTES = 500 * MIB
"""CUDA's context with the kernels of torch and cuBLAS; not measured, commonly reported as 300–600 MB."""
IMPORTED_BYTES = 463 * MIB
"""Resident memory of a Python after the imports of a job; measured with torch 2.13 (CPU build)."""
WORKING_BYTES = 105 * MIB
WORKING_UNCERTAINTY_BYTES = 115 * MIB
"""What a process takes on a CPU from there to its first steps, without tensors: 80 to 215 MiB in eight trainings."""
RESERVED_BYTES = 1065 * MIB
RESERVED_UNCERTAINTY_BYTES = 250 * MIB
"""Private memory that the same Python reserves without touching it, on two cores; each further core adds some 40 MiB.
Most of it is pools of pyarrow, which `datasets` imports."""


class ImportFootprint(Struct, frozen=True):
    """Resident and private memory (`VmData`) of the Python that trains after its imports, in bytes."""

    resident_bytes: int
    private_bytes: int


class Device(Struct, frozen=True):
    """A GPU or the processor. `capacity_bytes` is what this training may use of it; None where unknown.

    `limited`: the capacity of a processor is a memory limit (`RLIMIT_DATA`), which counts private memory whether it was
    touched or not. `gpu_count` is the number of GPUs among which one process splits each batch
    (`torch.nn.DataParallel`); this is the first of them, which takes most.
    """

    on_gpu: bool
    capability: tuple[int, int] | None = None
    capacity_bytes: int | None = None
    limited: bool = False
    import_footprint: ImportFootprint | None = None
    gpu_count: int = 1

    @property
    def context_name(self) -> str:
        """What a process takes besides tensors and what the allocator holds."""
        return "CUDA context" if self.on_gpu else "Python with torch"

    @property
    def flash(self) -> bool:
        """Whether torch's flash attention runs here in 16 bit; assumed for a GPU of unknown capability."""
        return self.on_gpu and (self.capability is None or self.capability >= least_capability("flash"))


SLACK_SHARE = 0.03
"""Reserved above allocated memory at the peak, as a share of the tensors, where a trace does not tell it; assumed."""
CPU_SLACK_SHARE = 0.175
"""Memory of freed tensors that malloc keeps on a CPU, as a share of the peak of live ones; measured: 0.17 to 0.20 with
1.7 and 2.2 GiB of tensors (glibc 2.36)."""
SEGMENT_BYTES = 20 * MIB
"""The allocator cuts blocks of 1 to 10 MiB from segments of this size (c10/cuda/CUDACachingAllocator: kLargeBuffer)."""


class RuntimeOverhead(Struct, frozen=True):
    """Memory of a process beyond its tensors, in bytes: the context and the allocator's slack, partly proportional.

    `reserved_bytes` is reserved memory that a limit counts although it is never touched. Both `…_uncertainty_bytes` are
    0 for what was measured. `traced_slack` has the slack in bytes by batch, from a trace; it takes the place of
    `slack_share` and `slack_bytes`.
    """

    context_bytes: float
    slack_share: float
    slack_bytes: float
    context_uncertainty_bytes: float = 0.0
    reserved_bytes: float = 0.0
    reserved_uncertainty_bytes: float = 0.0
    traced_slack: tuple[tuple[int, float], ...] = ()

    @property
    def uncertainty_bytes(self) -> float:
        return self.context_uncertainty_bytes + self.reserved_uncertainty_bytes

    def slack(self, tensor_bytes: float, batch: int) -> float:
        """Bytes that the allocator holds in addition to tensors of `tensor_bytes` at micro batch `batch`."""
        if self.traced_slack:
            beyond = max(1.0, batch / self.traced_slack[-1][0])  # larger blocks leave larger gaps
            return interpolate(self.traced_slack, batch) * beyond
        return self.slack_share * tensor_bytes + self.slack_bytes


def interpolate(points: Sequence[tuple[float, float]], x: float) -> float:
    """The value at `x`, on the line between the points around it or that of the nearest one; ascending points."""
    below = [point for point in points if point[0] <= x]
    above = [point for point in points if point[0] > x]
    if not below or not above:
        return below[-1][1] if below else above[0][1]
    (low, first), (high, last) = below[-1], above[0]
    return first + (last - first) * (x - low) / (high - low)


def runtime_overhead(device: Device) -> RuntimeOverhead:
    """What a process takes of the device besides its tensors; what a limit counts in addition only under a limit."""
    if device.on_gpu:
        return RuntimeOverhead(CONTEXT_BYTES, SLACK_SHARE, SEGMENT_BYTES)
    imports = device.import_footprint
    imported, reserved, uncertainty = IMPORTED_BYTES, RESERVED_BYTES, RESERVED_UNCERTAINTY_BYTES
    if imports is not None:  # measured
        imported, uncertainty = imports.resident_bytes, 0
        reserved = max(0, imports.private_bytes - imports.resident_bytes)
    overhead = RuntimeOverhead(WORKING_BYTES + imported, CPU_SLACK_SHARE, 0.0, WORKING_UNCERTAINTY_BYTES)
    if not device.limited:
        return overhead
    return replace(overhead, reserved_bytes=reserved, reserved_uncertainty_bytes=uncertainty)
