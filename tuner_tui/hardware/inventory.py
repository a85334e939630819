"""The inventory of the machine: GPUs, CPU, memory, disk. What could not be read is `None`."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from tuner_tui.core.json_struct import Figure, Pid, Whole

Capability = tuple[int, int]
"""A compute capability of CUDA, such as (8, 6)."""


class GpuProblemKind(StrEnum):
    """The kind of a GPU problem; each has its own sentence and advice."""

    NO_LIBRARY = "no-library"
    NO_DRIVER = "no-driver"
    VERSION_MISMATCH = "version-mismatch"
    NO_GPU = "no-gpu"
    GPU_LOST = "gpu-lost"
    NO_PERMISSION = "no-permission"
    NO_ANSWER = "no-answer"
    UNKNOWN = "unknown"


class GpuProblem(Struct, frozen=True):
    """One problem with the GPUs of this machine, as a sentence, with advice."""

    kind: GpuProblemKind
    sentence: str
    advice: str
    gpu_index: int | None = None


class GpuProcess(Struct, frozen=True):
    """A process on a GPU as the driver reports it. Inside a container `pid` is the host's.

    `sm_pct` is the percentage of recent time in which its kernels ran; None where the driver does not report it.
    """

    pid: Pid
    memory_bytes: Whole | None
    command: str | None = None
    user: str | None = None
    sm_pct: Figure | None = None


class Ability(Struct, frozen=True):
    """Whether a GPU supports one feature (`bf16`, `tf32`, `flash`, …), and the reason."""

    name: str
    able: bool | None
    reason: str


class MigSlice(Struct, frozen=True):
    """One slice of a GPU in MIG mode, by the driver's name for it: `NVIDIA A100-SXM4-40GB MIG 3g.20gb`."""

    name: str
    uuid: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None


class Gpu(Struct, frozen=True):
    """One GPU. Sizes in bytes, power in watts, clocks in MHz. `slices` are those of a GPU in MIG mode."""

    index: int
    name: str
    uuid: str | None = None
    architecture: str | None = None
    capability: Capability | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    power_limit_w: float | None = None
    mig: bool | None = None
    processes: tuple[GpuProcess, ...] = ()
    abilities: tuple[Ability, ...] = ()
    slices: tuple[MigSlice, ...] = ()


class Cpu(Struct, frozen=True):
    """The processor, and how much of it this process may use.

    `affinity_cores` is the number of logical cores in the affinity mask, `quota_cores` the cgroup's CPU quota (2.5 is
    two and a half cores), `None` without one.
    """

    model: str | None
    physical_cores: int | None
    logical_cores: int
    affinity_cores: int
    quota_cores: float | None = None

    @property
    def load_cores(self) -> float:
        """The cores that `HostSample.cpu_pct` is relative to: the quota where there is one, else the affinity mask."""
        return self.affinity_cores if self.quota_cores is None else self.quota_cores

    @property
    def usable_cores(self) -> int:
        """Whole cores that this process can keep busy: the affinity mask, limited by the quota, at least 1."""
        if self.quota_cores is None:
            return self.affinity_cores
        return max(1, min(self.affinity_cores, int(self.quota_cores)))


class HostMemory(Struct, frozen=True):
    """RAM of the machine and the cgroup's limit, in bytes."""

    total_bytes: int
    available_bytes: int | None = None
    limit_bytes: int | None = None
    swap_total_bytes: int | None = None

    @property
    def usable_bytes(self) -> int:
        """Bytes that a training may use at most."""
        return self.total_bytes if self.limit_bytes is None else min(self.total_bytes, self.limit_bytes)


class Space(Struct, frozen=True):
    """Size and free space of the file system of a folder, in bytes, and whether this user can write there."""

    path: str
    total_bytes: int
    free_bytes: int
    writable: bool = True


class Inventory(Struct, frozen=True):
    """Everything known about the machine before anything runs.

    `logout_warning` says what a logout would end and how to prevent that; None where it ends nothing.
    """

    hostname: str
    gpus: tuple[Gpu, ...]
    cpu: Cpu
    memory: HostMemory
    driver_version: str | None = None
    cuda_version: str | None = None
    problems: tuple[GpuProblem, ...] = ()
    shm: Space | None = None
    disk: Space | None = None
    container: str | None = None
    cuda_visible_devices: str | None = None
    logout_warning: str | None = None
